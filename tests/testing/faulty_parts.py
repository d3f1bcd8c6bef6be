"""Faulty parts of methods, metrics and partitions: what makes `it`, and what is to be said of it."""

from __future__ import annotations

ROW = "torch.arange(num_layers) < capacities[:, None]"


def _allocation(body: str, takes: str = "", before: str = "") -> str:
    return f"{before}\ndef it(capacities, num_layers{takes}):\n    {body}"


ALLOCATIONS = {
    "one too few": (_allocation(f"return {ROW} - 1"), "gave client 0 of the round 0 layers; its capacity is 1"),
    "torch's chance": (_allocation(f"torch.rand(1); return {ROW}"), r"global generator \(of torch\); take `generator`"),
    "python's chance": (_allocation(f"random.random(); return {ROW}", before="import random"), r"\(of Python\)"),
    "hidden chance": (
        _allocation(
            f"with torch.random.fork_rng():\n        return ({ROW})[:, torch.randperm(num_layers)]",
        ),
        "another result when called again with the same seed: .* take `generator`",
    ),
    "memory by round": (
        _allocation(f"return ({ROW}).roll(SEEN.setdefault(round, len(capacities)), 1)", ", round", "SEEN = {}"),
        "depends on what it was asked before: keep nothing between calls",
    ),
    "counts": (_allocation(f"return ({ROW}).long()"), "must return a bool tensor"),
    "an input nobody gives": (
        _allocation(f"return {ROW}", ", layer_cost=None"),
        "'layer_cost' .*did you mean 'layer_costs'",
    ),
    "a symbol": (
        f"def it(capacities, L):\n    return {ROW.replace('num_layers', 'L')}",
        "its parameter 'L' is an option of suites; did you mean 'num_layers', which fedbench passes",
    ),
    "another width": (_allocation("return capacities[:, None] > 0"), "gave client|must give 6 columns"),
    "a generator in vain": (
        _allocation(f"torch.rand(1, generator=generator); return {ROW}", ", generator"),
        "the same M for 16 seeds, though it takes a generator: draw from that, or leave it out",
    ),
}

MEAN = "aggregation.weighted_mean(state, uploads, plan, cohort)"


def _aggregator(body: str, before: str = "") -> str:
    return (
        "from dataclasses import replace\nfrom fedbench.families import aggregation\n\n"
        f"def it():\n    {before or 'pass'}\n"
        f"    def aggregate(state, uploads, plan, cohort):\n        {body}\n    return aggregate"
    )


def _remembers(what: str) -> str:
    return _aggregator(f"new = {MEAN}; return {{**new, 'memory': {{'kept': {what}}}}}")


def _weighing(weights: str = "w[held][came]", total: str = "share.sum()") -> str:
    """A mean of its own, over the rows that came."""
    return f"""
from fedbench.families import aggregation

def it():
    def aggregate(state, uploads, plan, cohort):
        def mean(old, rows, held):
            came, w = uploads.arrived[held], cohort.num_examples.to(rows.dtype)
            if not came.any():
                return old.clone()
            share = {weights}
            return torch.tensordot(share / {total}, rows[came], 1)
        return {{**state, **aggregation.by_tensor(state, uploads, plan, mean)}}
    return aggregate
"""


OWN_MEAN = _weighing()
AGGREGATORS = {
    "in place": (
        _aggregator(f"state['shared']['head.weight'].mul_(0.5); return {MEAN}"),
        r"changes what it is given; work on a copy \(`.clone\(\)`\)",
    ),
    "the lost": (
        _aggregator(f"uploads = replace(uploads, arrived=uploads.arrived | True); return {MEAN}"),
        r"rows that did not arrive \(`uploads.arrived`\)",
    ),
    "the unheld": (
        _aggregator(
            f"new = {MEAN}; held = plan.M.any(0).double()\n        return {{**new, "
            "'r': [{k: v * held[j] for k, v in r.items()} for j, r in enumerate(new['r'])]}"
        ),
        "layer 2 came back from nobody and must keep its value",
    ),
    "weights of all clients": (
        _weighing("w[came]"),
        r"IndexError: .* \(faulty.py:\d+\)",
    ),
    "all weights": (
        _aggregator(
            "w = cohort.num_examples / cohort.num_examples.sum()\n"
            "        new = [{k: (w[:, None, None] * v).sum(0) for k, v in r.items()} for r in uploads.r]\n"
            "        return {**state, 'r': new}"
        ),
        r"RuntimeError: The size of tensor a \(3\) must match the size of tensor b \(2\)",
    ),
    "memory in a closure": (
        _aggregator(
            f"new = {MEAN}; calls.append(1)\n"
            "        return {**new, 'shared': {k: v / len(calls) for k, v in new['shared'].items()}}",
            "calls = []",
        ),
        r"another result when called again .* does it remember something, in a closure.* keep it in state\[.memory.\]",
    ),
    "no shared": (_aggregator("return {'r': state['r']}"), r"the whole state, with `r` and `shared`: \{\*\*state"),
    "no memory": (_aggregator(f"new = {MEAN}; new.pop('memory'); return new"), r'must return state\["memory"\] too'),
    "other shapes": (
        _aggregator(f"new = {MEAN}; return {{**new, 'shared': {{k: v[None] for k, v in new['shared'].items()}}}}"),
        r"it returned Tensor torch.float64 .* for shared/.*, where Tensor torch.float64 .* is right",
    ),
    "its own precision": (
        _aggregator(f"new = {MEAN}; return {{**new, 'shared': {{k: v.double() for k, v in new['shared'].items()}}}}"),
        r"in float32, as in a run, shared/head.weight becomes torch.float64: .* `.to\(old.dtype\)`",
    ),
    "a table in float64": (
        _aggregator(
            f"new = {MEAN}; by = {{k: torch.eye(len(v), dtype=torch.float64) for k, v in new['shared'].items()}}\n"
            "        return {**new, 'shared': {k: torch.tensordot(by[k], v, 1) for k, v in new['shared'].items()}}"
        ),
        r"in float32, as in a run, the aggregator raises RuntimeError: .*\.py:\d+\)",
    ),
    "no numbers": (
        _aggregator(
            f"new = {MEAN}; new['shared'] = {{k: v * float('inf') for k, v in new['shared'].items()}}; return new"
        ),
        "shared must stay|is not finite",
    ),
    "NaN remembered": (
        _remembers("torch.stack([u.mean() for u in uploads.shared.values()]) * float('nan')"),
        r"\['kept'\] is NaN",
    ),
    "an object remembered from the third round on": (
        _remembers("(n := state['memory'].get('kept', 0) + 1) if state['memory'].get('kept', 0) < 2 else {1}"),
        r"in round 3 the aggregator: state\['memory'\]\['kept'\] is a set, which is neither tensor nor JSON",
    ),
    "a key that is no text from the fifth round on": (
        _remembers(
            "{**state['memory'].get('kept', {}), **{(str(n), n)[n > 3]: n for n in "
            "[len(state['memory'].get('kept', {}))]}}"
        ),
        r"in round 5 the aggregator: the keys of state\['memory'\]\['kept'\] must be texts, not 4",
    ),
    "no number from the eighth round on": (
        _remembers("n + 1.0 if (n := state['memory'].get('kept', 0.0)) < 7 else float('nan')"),
        r"state\[.memory.\]\['kept'\] is NaN",
    ),
    "an object remembered": (_remembers("set()"), r"\['memory'\]\['kept'\] is a set, which is neither tensor nor JSON"),
    "the state remembered": (
        _remembers("new['shared']['head.weight']"),
        r"shares its memory with .*head.weight.*clone one of them",
    ),
    "uploads remembered": (
        _remembers("uploads.shared['head.weight']"),
        "rows that did not arrive|shares its memory with what the aggregator was given",
    ),
    "chance": (
        _aggregator(f"new = {MEAN}; torch.manual_seed(0); return new"),
        "draws from a global generator .* fedbench.seeding.generator gives one for each round",
    ),
    "weights of others": (_weighing("w[: len(rows)][came]"), r"order in which clients stand .`r/.*`held = trained_by"),
    "weights of the first": (
        _weighing("w[: int(came.sum())]"),
        "order in which clients stand .`r/0/.*rows.came.` go with",
    ),
    "weight of the lost": (
        _weighing(total="w[held].sum()"),
        "becomes another where client 2 is lost: does its weight still count in the sum that is divided by",
    ),
    "remembered by place": (
        _aggregator(
            "w = cohort.num_examples.double(); cohort = replace(cohort, num_examples=w + state['memory'].get('w', w))\n"
            f"        return {{**{MEAN}, 'memory': {{'w': w}}}}"
        ),
        "depends on the order .* goes by its number, `cohort.ids.n.`, not by its place",
    ),
    "adapters thrown away": (
        _aggregator(f"return {{**{MEAN}, 'r': state['r']}}"),
        "the aggregator leaves the adapters of the layers, state..r.., unchanged in every round, .* thrown away",
    ),
    "the classifier thrown away": (
        _aggregator(f"return {{**{MEAN}, 'shared': state['shared']}}"),
        "leaves what stands outside the layers, state..shared.., unchanged",
    ),
    "no aggregator": ("def it():\n    return 3", r"must return a function of .*, not int \(faulty.py:7\)"),
    "another signature": (
        "def it():\n    return lambda state, uploads: state",
        r"function of \(state, uploads, plan, cohort\), not of \(state, uploads\): too many .* \(faulty.py:7\)",
    ),
}


def _objective(body: str, before: str = "") -> str:
    return (
        "from torch.nn.functional import cross_entropy\n\ndef it():\n"
        f"    {before or 'pass'}\n    def objective(exits, y, t):\n        {body}\n    return objective"
    )


SUM = "sum(cross_entropy(o, y) for o in exits)"
OBJECTIVES = {
    "last exit alone": (
        _objective("return cross_entropy(exits[-1], y)"),
        "does not depend on exit 1 of them: `exits` lists the logits of every classifier",
    ),
    "values": (_objective(f"loss = {SUM}; return loss * max(loss.item(), 1)"), "device meta.*no `.item"),
    "detached": (_objective(f"return ({SUM}).detach()"), "has no gradient: do not detach it"),
    "a vector": (
        _objective("return sum(cross_entropy(o, y, reduction='none') for o in exits)"),
        r"must be a scalar tensor, not Tensor torch.float64 \(4,\); take a mean over the batch",
    ),
    "no number": (_objective(f"return ({SUM}) / t"), "of 1 exits in round 0 is inf"),
    "chance": (_objective(f"return ({SUM}) * torch.rand(())"), "draws from a global generator"),
    "memory by round": (
        _objective(f"return ({SUM}) * seen.setdefault(t, len(exits))", "seen = {}"),
        "depends on what the objective was asked before: keep nothing between calls",
    ),
    "in place": (_objective(f"y.fill_(0); return {SUM}"), "changes what it is given"),
    "no maker": (
        "def it(exits, y, t):\n    return exits[0].sum()",
        "it takes exits, y, t, with which fedbench calls the objective itself: register a function that returns this",
    ),
    "other arguments": (
        "def it():\n    return lambda logits, y: logits.mean()",
        r"must return a function of \(exits, y, t\), not of \(logits, y\): too many .* \(faulty.py:7\)",
    ),
}


def _metric(body: str, before: str = "") -> str:
    return f"def it():\n    {before or 'pass'}\n    def metric(logits, y):\n        {body}\n    return metric"


RIGHT = "(logits.argmax(1) == y).double().mean().item()"


def _summed(sums: str) -> str:
    return (
        "from fedbench.types import SummedMetric\n\ndef it():\n"
        f"    return SummedMetric(lambda logits, y: {sums}, lambda sums: (sums[0].sum() / sums[1].sum()).item())"
    )


METRICS = {
    "means": (_summed("torch.stack([(logits.argmax(1) == y).double().mean(), torch.tensor(1.0)])"), "sums, not means"),
    "rows": (
        _summed("torch.stack([(logits.argmax(1) == y).double(), torch.ones(len(y))])"),
        "same shape and type for every",
    ),
    "floats": (_summed(f"[torch.tensor({RIGHT}), torch.tensor(1.0)]"), "must return a tensor of the same shape"),
    "its logits": (_metric(f"logits.sub_(logits.max()); return {RIGHT}"), "changes what it is given; work on a copy"),
    "a vector": (
        _metric("return (logits.argmax(1) == y).double()"),
        r"must be one number, not Tensor .* \(1,\); take a",
    ),
    "text": (_metric("return '3'"), "must be one number, not str"),
    "no number": (_metric("return float('nan')"), "of 1 images is nan"),
    "chance": (_metric(f"return {RIGHT} + np.random.rand()"), r"global generator \(of NumPy\)"),
    "a clock": (_metric("import time; return time.perf_counter()"), "another result when called again"),
    "memory": (_metric("seen.setdefault('n', len(y)); return float(seen['n'])", "seen = {}"), "domains come one after"),
    "no metric": (
        f"def it(logits, y):\n    return {RIGHT}",
        "it takes logits, y, with which .* register a function that returns this one",
    ),
}


def _partition(body: str, before: str = "") -> str:
    return (
        "from fedbench.types import MIXED, Client\n\ndef it():\n"
        f"    {before or 'pass'}\n    def partition(y, domain, num_domains, generator):\n        {body}\n"
        "    return partition"
    )


HALVES = "[Client(d, d, np.flatnonzero(domain == d)) for d in range(num_domains)]"
PARTITIONS = {
    "overlap": (_partition("return [Client(i, 0, np.flatnonzero(domain == 0)) for i in range(2)]"), "is dealt 2 times"),
    "invented": (
        _partition("return [Client(0, MIXED, np.arange(len(y) + 5))]"),
        "must be positions in y, from 0 to 239, not 0 to 244",
    ),
    "a mask": (_partition("return [Client(0, 0, domain == 0)]"), "must be positions in y, int64 .* not ndarray bool"),
    "an empty client": (_partition(f"return {HALVES} + [Client(3, 0, np.arange(0))]"), "client 3 has no image"),
    "nobody": (_partition("return []"), "makes no client at all"),
    "a domain that it is not of": (
        _partition("return [Client(0, MIXED, np.flatnonzero(domain == 1))]"),
        "client 0 of domain -1",
    ),
    "other ids": (_partition("return [Client(7, 0, np.arange(9))]"), "client ids must be 0, 1, 2"),
    "another domain": (_partition("return [Client(0, 1, np.arange(9))]"), "holds images of another domain"),
    "arrays": (
        _partition("return [np.flatnonzero(domain == d) for d in range(3)]"),
        "returns a list of fedbench.types.Client, not one whose item 0 is ndarray int64 ",
    ),
    "chance": (
        _partition("return [Client(0, MIXED, np.random.permutation(len(y)))]"),
        r"global generator \(of NumPy\); take `generator`, a numpy.random.Generator",
    ),
    "unseeded chance": (
        _partition("return [Client(0, MIXED, np.random.default_rng().permutation(len(y)))]"),
        "another result when called again .* draw from a generator of its own. take `generator`",
    ),
    "its labels": (_partition(f"y.sort(); return {HALVES}"), "changes what it is given"),
}
