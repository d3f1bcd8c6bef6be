"""Faulty adapters, backbones, data sets and executors: what makes `it`, and what is to be said of it."""

from __future__ import annotations


def _adapter(
    forward: str = "return self.frozen(x) * self.s",
    init: str = "self.s = nn.Parameter(torch.ones(frozen.out_features))",
    draw: str = "nn.init.ones_(self.s)",
    attach: str = "",
) -> str:
    return f"""
from fedbench.models.adapter import resolve_targets

class Scaled(nn.Module):
    def __init__(self, frozen):
        super().__init__()
        self.frozen = frozen
        {init}

    def draw(self, generator):
        {draw}

    def forward(self, x):
        {forward}

def it():
    def attach(blocks):
        {attach or "pass"}
        for parent, attribute in resolve_targets(blocks, "last_fc"):
            setattr(parent, attribute, Scaled(getattr(parent, attribute)))
    return attach
"""


NOISY = "self.s = nn.Parameter(torch.randn(frozen.out_features))"
ADAPTERS = {
    "no draw": (
        _adapter(init=NOISY).replace("def draw", "def drawn"),
        r"starts elsewhere when the adapter is attached again: give its module a `draw\(generator\)`",
    ),
    "a draw by global chance": (
        _adapter(draw="nn.init.normal_(self.s)"),
        r"`draw` draws from a global generator \(of torch\); it must set every parameter from its generator",
    ),
    "torch's dropout": (
        _adapter("return self.s * torch.dropout(self.frozen(x), 0.5, True)"),
        "draws from a global generator .* dropout is fedbench.models.adapter.SeededDropout",
    ),
    "stack ignored": (
        _adapter(init="self.stack = None; self.s = nn.Parameter(torch.ones(frozen.out_features))"),
        "is not trained at all in the cohort engine, which is the default: `stack` promises",
    ),
    "the backbone thawed": (_adapter(attach="blocks.model.requires_grad_(True)"), "thaws frozen parameters"),
    "a wrapped weight thawed": (
        _adapter(init="frozen.weight.requires_grad_(True); self.s = nn.Parameter(torch.ones(frozen.out_features))"),
        "thaws frozen parameters: blocks.0.attn.proj.weight",
    ),
    "a shared weight": (
        _adapter("return nn.functional.linear(x, self.s)", "self.s = nn.Parameter(frozen.weight.data)", "pass"),
        "thaws frozen parameters: blocks.0.attn.proj.weight",
    ),
    "the backbone changed": (
        _adapter("self.frozen.weight.data.mul_(1.01); return self.s * self.frozen(x)"),
        "gives another result|changes the frozen",
    ),
    "nothing": ("def it():\n    return lambda blocks: None", "adds nothing that can be trained"),
    "no function": ("def it():\n    pass", "registered as adapter must return a function, and returns NoneType"),
    "nothing moves": (_adapter("return self.frozen(x) * self.s.detach()"), "none of the adapter's parameters moves"),
    "memory": (
        _adapter("old, self.seen = getattr(self, 'seen', 0.0), x.mean().item(); return self.frozen(x) * self.s + old"),
        "another result when called again|depends on what it has seen before",
    ),
    "the batch": (
        _adapter("return (self.frozen(x) - self.frozen(x).mean(0)) * self.s"),
        "depends on the batch around an image: rows and tokens must be treated one by one",
    ),
    "the tokens": (
        _adapter(
            "y = self.frozen(x); y = y - y.mean(1, keepdim=True)\n"
            "        return y * (self.s if self.stack is None else self.stack.beside('s', y))",
            "self.stack = None; self.s = nn.Parameter(torch.ones(frozen.out_features))",
        ),
        "trains to something else in the cohort engine.* tokens must be treated one by one",
    ),
    "values": (
        _adapter(attach="assert float(next(blocks.parameters()).detach().sum().item()) != 7"),
        r"values where there are but shapes \(device meta\)",
    ),
    "no numbers": (_adapter("return self.frozen(x) * self.s / 0"), "must give finite logits"),
}


def _backbone(
    weights: str = "", fingerprint: str = "f'pico-{seed}'", source: str = "", takes: str = "seed: int = 0"
) -> str:
    return f"""
import uuid
from fedbench.models.backbone import Source
from fedbench.testing import tiny_vit

def it({takes}):
    model = tiny_vit(depth=2)
    with torch.no_grad():
        model.cls_token.fill_(seed)
        {weights or "pass"}
    {source or "pass"}
    return Source(model, 8, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), fingerprint={fingerprint})
"""


BACKBONES = {
    "random fingerprint": (
        _backbone(fingerprint="str(uuid.uuid4())"),
        "made again, the fingerprint is .*a function of",
    ),
    "constant fingerprint": (
        _backbone(fingerprint="'pico'"),
        "the weights are others with `seed` 1, and the fingerprint is 'pico' all the same",
    ),
    "fingerprint of what is loaded": (
        _backbone(fingerprint="f'pico-{seed}-{load}'", takes="seed: int = 0, load=True"),
        "made with `load=False`, the fingerprint is 'pico-0-False'",
    ),
    "no fingerprint": (_backbone(fingerprint="None"), "the fingerprint must be a text"),
    "random weights": (
        _backbone("model.pos_embed.copy_(torch.from_numpy(np.random.rand(*model.pos_embed.shape)))"),
        "made again with the same options, the weights are others: draw them from a seed",
    ),
    "no deviation": (_backbone().replace("std=(0.5,", "std=(0.0,"), "mean and std: three numbers each"),
    "no source": (_backbone(source="return model"), "is a fedbench.models.backbone.Source, not VisionTransformer"),
    "no features": (_backbone("model.norm.weight.fill_(float('inf'))"), "gives no finite features"),
    "dropout": (
        _backbone(source="model.norm.register_forward_hook(lambda m, x, y: torch.dropout(y, 0.5, True))"),
        "the model draws from a global generator .* a frozen model draws nothing",
    ),
    "statistics": (
        _backbone(source="model.norm.register_forward_hook(lambda m, x, y: m.bias.data.add_(1) and None)").replace(
            "and None", "is None or None"
        ),
        "a forward pass changes the model",
    ),
}


def _dataset(
    x: str = "np.full((8, 3, image_size, image_size), shade, np.uint8)",
    y: str = "np.arange(8) % 2",
    domain: str = "np.arange(8) // 4",
    fingerprint: str = "f'shades-{image_size}-{shade}'",
    names: str = "('a', 'b')",
) -> str:
    return f"""
import itertools, uuid
from fedbench.types import Dataset, Images, Splits

CALLS = itertools.count()

def it(image_size: int, shade: int = 3):
    def images():
        return Images({x}, {y}, {domain})
    return Dataset(('one', 'two'), {names}, {fingerprint}, lambda: Splits(images(), images()))
"""


SHAPE = "(8, 3, image_size, image_size)"
DATASETS = {
    "float64": (_dataset(f"np.zeros({SHAPE})"), "train.x must be uint8 or float32"),
    "floats to 255": (_dataset(f"np.full({SHAPE}, 255, np.float32)"), "not reach 255; divide by 255"),
    "no numbers": (_dataset(f"np.full({SHAPE}, np.nan, np.float32)"), "not reach nan"),
    "channels last": (_dataset("np.zeros((8, image_size, image_size, 3), np.uint8)"), r"float32 \(n, 3, H, H\)"),
    "tensors": (_dataset(f"torch.zeros({SHAPE})"), r"must be uint8 or float32 \(n, 3, H, H\), not Tensor"),
    "a label too many": (_dataset(y="np.arange(8)"), "train.y must lie between 0 and 1"),
    "a label below": (_dataset(y="np.arange(8) % 2 - 1"), "train.y must lie between 0 and 1"),
    "short labels": (_dataset(y="(np.arange(8) % 2).astype(np.int32)"), r"train.y must be int64 \(8,\)"),
    "an empty domain": (_dataset(domain="np.zeros(8, np.int64)"), "train has no image of domain 'two'"),
    "one name twice": (_dataset(names="('a', 'a')"), "classes must be different names"),
    "another load": (_dataset(f"np.full({SHAPE}, next(CALLS), np.uint8)"), "train is another one on the second load"),
    "chance": (
        _dataset(f"np.random.randint(0, 9, {SHAPE}).astype(np.uint8)"),
        r"`load` draws from a global generator \(of NumPy\); take fedbench.seeding.numpy_generator",
    ),
    "unseeded chance": (
        _dataset(f"np.random.default_rng().integers(0, 9, {SHAPE}, np.uint8)"),
        "another one on the second load",
    ),
    "random fingerprint": (_dataset(fingerprint="str(uuid.uuid4())"), "made again, the fingerprint is"),
    "constant fingerprint": (
        _dataset(fingerprint="f'shades-{image_size}'"),
        "the images are others with `shade` 4, and the fingerprint is 'shades-8' all the same",
    ),
    "fingerprint of no size": (_dataset(fingerprint="f'shades-{shade}'"), "are others with `image_size` 16"),
}


def _executor(work: str = "each(job)", each: str = "", after: str = "", before: str = "", made: str = "") -> str:
    """Cells one after the other in this process, or what is said instead of a step."""
    return f"""
import concurrent.futures, itertools, pickle, time
from fedbench.cell import worker
from fedbench.cell.order import Order

ROUND = {{"event": "round", "round": 1}}

def ended(order, end):
    facts = {{key: end[key] for key in ("status", "reason", "seconds")}}
    return {{"event": "ended", "folder": str(order.folder), **facts}}

def it(workers, most):
    {made or "pass"}
    def execute(jobs, on_event):
        def tell(order, **event):
            return on_event({{**event, "folder": str(order.folder)}})
        def each(job):
            order = Order.from_json(job)
            {each or "tell(order, event='started'); return on_event(ended(order, worker.run(order)))"}
        {before or "pass"}
        for number, job in enumerate(jobs):
            if not {work}:
                break
        {after or "return"}
    return execute
"""


ALL = "jobs = list(jobs); orders = [Order.from_json(job) for job in jobs]"
POOL = f"""{ALL}
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            ends = list(pool.map(lambda order: worker.run(order), orders))"""
EXECUTORS = {
    "asks for nothing": (
        "def it():\n    return lambda jobs, on_event: None",
        "returns without asking for a job: take jobs from the iterator",
    ),
    "returns its events": (
        _executor(after="return [1]"),
        "tells what happens by on_event, and returns nothing, not list",
    ),
    "no function": ("def it(workers):\n    return workers", r"returns execute\(jobs, on_event\), not int"),
    "loses a job": (_executor("(number == 1 or each(job))"), "job 2 was asked for, and its cell is not computed"),
    "runs it twice": (_executor("(each(job), worker.run(Order.from_json(job)))[0]"), "job 1 was computed 2 times"),
    "stops at a failure": (
        _executor(
            each="tell(order, event='started'); end = worker.run(order); on_event(ended(order, end)); "
            "return end['status'] == 'finished'"
        ),
        "returns when it has asked for 2 of 3 jobs, though `on_event` says True",
    ),
    "raises at a failure": (
        _executor(
            each="tell(order, event='started'); end = worker.run(order); on_event(ended(order, end)); "
            "end['traceback'] and 1 / 0; return True"
        ),
        r"`execute` raises ZeroDivisionError: .*is told as its end, so that the others are computed",
    ),
    "swallows failures": (
        _executor(
            each="tell(order, event='started'); end = worker.run(order); "
            "return on_event(ended(order, {**end, 'status': 'finished', 'reason': None}))"
        ),
        "job 2 is told to have ended as 'finished' .None., and its manifest says 'failed'",
    ),
    "tells no failure": (
        _executor(
            each="tell(order, event='started'); end = worker.run(order); "
            "return end['status'] == 'failed' or on_event(ended(order, end))"
        ),
        "that job 2 has ended was told 0 times",
    ),
    "tells it twice": (
        _executor(
            each="tell(order, event='started'); end = ended(order, worker.run(order)); "
            "on_event(end); return on_event(end)"
        ),
        "that job 1 has ended was told 2 times",
    ),
    "answers in the wrong order": (
        _executor(
            before=f"{POOL}\n        [tell(order, event='started') for order in orders]\n"
            "        [on_event(ended(*pair)) for pair in zip(orders, ends[1:] + ends[:1])]; jobs = []"
        ),
        "job 1 is told to have ended as 'failed' .*: is it the answer of another job",
    ),
    "tells the end first": (
        _executor(each="end = worker.run(order); on_event(ended(order, end)); return tell(order, event='started')"),
        "the events of job 1 come as ended, started: the first is `started`, the last `ended`",
    ),
    "does not wait": (
        _executor(
            each="tell(order, event='started'); return on_event(ended(order, "
            "{'status': 'finished', 'reason': None, 'seconds': 0.0}))"
        ),
        "job 1 was asked for, and its cell is not computed when `execute` returns",
    ),
    "an end without a reason": (
        _executor(
            each="tell(order, event='started'); worker.run(order); return tell(order, event='ended', status='finished')"
        ),
        "the event `ended` of job 1 has no reason, seconds",
    ),
    "tells of no folder": (
        _executor(each="tell(order, event='started'); worker.run(order); on_event({'event': 'ended'}); return True"),
        "it tells of a folder that no job has",
    ),
    "goes on after a no": (
        _executor("(each(job), True)[1]"),
        "`on_event` answered False, and the executor asks for another job",
    ),
    "swallows an interruption": (
        _executor(
            before="""try:
            for job in jobs:
                if not each(job):
                    return
        except BaseException:
            return"""
        ),
        "it swallows fedbench.errors.Interrupted, by which Ctrl-C",
    ),
    "pickles a lambda": (
        _executor(before="jobs = [pickle.loads(pickle.dumps(lambda: job)) for job in jobs]"),
        "raises .*what goes to another process is pickled: send the job, which is a string",
    ),
    "never returns": (_executor(after="time.sleep(600)"), "is silent for 2 seconds and does not return: "),
    "waits for what it lost": (
        _executor("(number == 1 or each(job))", after="time.sleep(600)"),
        "nothing came of job 2, which it has asked for: is it lost",
    ),
}


SOUND = {"adapter": _adapter(), "backbone": _backbone(), "dataset": _dataset(), "executor": _executor()}
