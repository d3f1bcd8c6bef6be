"""Faulty methods: what makes `it`, and what is to be said of it."""

from __future__ import annotations


def _method(
    round: str = "pass", init: str = "pass", predict: str = "", price: str = "", before: str = "", end: str = ""
) -> str:
    """A small whole method: clients count their classes."""
    return f"""
from dataclasses import replace
from fedbench import Method
from fedbench.types import ClientCost, Plan, Report, Uploads

SEEN = {{}}

def it(setup):
    C, L = setup.num_classes, setup.scenario.num_layers
    paid = ClientCost(flops_per_image=0, bytes_down=0, bytes_up=8 * C, memory_bytes=8 * C)
    {before or "pass"}

    def init(generator):
        state = {{"counts": torch.zeros(C, dtype=torch.int64)}}
        {init}
        return state

    def round(state, t, cohort, generator):
        counts, more, N = state["counts"].clone(), {{}}, len(cohort)
        for n in range(N):
            for _, (x, y) in zip(range(int(cohort.steps[n])), cohort.batches(n)):
                counts += torch.bincount(y.cpu(), minlength=C) * bool(cohort.arrives[n])
        {round}
        uploads = Uploads.of(cohort, [{{}} for _ in range(L)], {{}}, loss=torch.zeros(N), seconds=torch.zeros(N))
        report = Report(Plan(torch.zeros(N, L, dtype=torch.bool), [()] * N), cohort, uploads, [paid] * N)
        {end}
        return {{"counts": counts, **more}}, report

    def predictor(state, client=None):
        return lambda x: {predict or "state['counts'].float().expand(len(x), C)"}

    def cost(L_n, t):
        {price or "return paid"}

    return Method(init, round, predictor, cost=cost)
"""


SOUND = _method()
METHODS = {
    "its state": (_method("state['counts'] += 1"), "round changes what it is given; work on a copy"),
    "memory": (_method("counts[0] += len(calls); calls.append(t)", before="calls = []"), "another result when called"),
    "memory by round": (
        _method("counts[0] += int(SEEN.setdefault(t, counts.sum())) if N else 0"),
        "nobody returns|made again must do the same: keep nothing outside `state`",
    ),
    "memory of the round before": (
        _method("SEEN[t] = 1; counts[0] += (SEEN[t - 1] if t == 1 and N else 0) * int(cohort.arrives.any())"),
        "made again must do the same: keep nothing outside `state`, neither in the module nor by round",
    ),
    "chance": (_method("torch.rand(1)"), r"round draws from a global generator \(of torch\)"),
    "chance at the start": (_method(init="state['w'] = torch.rand(2)"), "init draws from a global generator"),
    "a clock": (
        _method("import time; counts[0] = time.perf_counter_ns()"),
        "round gives another result when called again",
    ),
    "the lost": (
        SOUND.replace(" * bool(cohort.arrives[n])", ""),
        "nobody returns|is lost .* their images change the state",
    ),
    "a whole epoch": (
        _method("for n in range(N):\n            for x, y in cohort.batches(n):\n                pass"),
        r"client 0 takes 7 batches in a round in which it has 2 steps: .* stop after `cohort.steps.n.`",
    ),
    "a step too many": (
        SOUND.replace("range(int(cohort.steps[n]))", "range(int(cohort.steps[n]) + 1)"),
        r"the batches after the last step of a client change the state: .* stop after them",
    ),
    "a plan without those who take part": (
        _method(price="return None"),
        "client 0 takes part in round 0, and by `cost` it does not: None is for clients that the round leaves out",
    ),
    "work that no plan tells of": (
        _method(end="report = replace(report, cost=[replace(paid, flops_per_image=9)] * N)"),
        "client 0 takes part in round 0 at 9 FLOPs an image, and by `cost` at 0: put the same ClientCost",
    ),
    "passes that no cost tells of": (
        _method("[0 for n in range(N) for _ in zip(range(int(cohort.steps[n])), cohort.batches(n))]"),
        "client 0 takes 4 batches .* tell further passes over its images by `personal_epochs`",
    ),
    "an object": (_method(init="state['x'] = object()"), "state.'x'. is a object, which is neither tensor nor JSON"),
    "no free": (
        _method(price="return replace(paid, bytes_up=0, memory_bytes=0)"),
        "must be positive, not .* pays something",
    ),
    "less than nothing": (_method(price="return replace(paid, bytes_up=-1)"), "finite numbers, none below 0"),
    "no price": (_method(price="return 3"), "must be a fedbench.types.ClientCost, not int"),
    "a price that raises": (_method(price="raise UserError('no such size')"), "no such size"),
    "no report": (_method(end="report = None"), r"a round returns \(state, Report\), not \(dict, NoneType\)"),
    "no bill": (
        _method(end="report = replace(report, cost=[])"),
        "report.cost must have one entry for each of 3 clients",
    ),
    "flat answers": (_method(predict="x.flatten(1)"), r"finite logits \(5, 3\)"),
    "answers of the last round": (
        _method(
            "last.append(counts)",
            before="last = []",
            predict="(last or [state['counts']])[-1].float().expand(len(x), C)",
        ),
        "the predictor answers from something else than the state it is given",
    ),
    "answers from the batch": (
        _method(predict="(x.mean((1, 2, 3)) - x.mean())[:, None] * torch.ones(C, dtype=x.dtype)"),
        "the predictor answers otherwise for an image where other images are in its batch",
    ),
    "answers by chance": (_method(predict="torch.randn(len(x), C)"), "predictor draws from a global generator"),
    "no method": ("def it(setup):\n    return {}", "must return a fedbench.method.Method, not dict"),
    "another signature": (
        _method() + "\n\nsound = it\n\ndef it(setup):\n    return replace(sound(setup), init=lambda: {})",
        r"takes 0 positional arguments but 1 was given \(faulty.py:\d+\)",
    ),
    "a parameter": (_method(init="state['w'] = nn.Parameter(torch.ones(2))"), "must be detached"),
}
