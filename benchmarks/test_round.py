"""One round of unequal clients by every engine that is installed: `tox -e bench`, with a table of ratios.

On a tiny size, fedbench's own engines do the same round.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack

import pytest
from contenders.engines import cohort, sequential
from contenders.floor import necessary_flops, peak
from contenders.flower import flower
from contenders.pfl import pfl
from contenders.reference import reference
from interleaved import Times, table, timed
from test_contenders import apart, missing, plain_round
from work import DIM64, DIM192, MINILM, SENTENCES, SMOLLM2, TINY

PASSES = {"dim64": 9, "dim192": 4, "minilm": 5, "sentences": 5, "smollm2": 5}
CONTENDERS = {
    "cohort": (cohort, ()),
    "cohort, bf16": (functools.partial(cohort, precision="bf16"), ()),
    "sequential": (sequential, ()),
    "Flower": (flower, ("flwr", "ray")),
    "pfl-research": (pfl, ("pfl",)),
    "the FedRA reference's way": (reference, ("peft",)),
}
INEXACT = {"cohort, bf16", "the FedRA reference's way"}  # rounding, and random dropout


@pytest.mark.parametrize("engine", [cohort, pytest.param(sequential, marks=pytest.mark.slow)])
def test_our_engines_do_the_plain_loops_round(engine):
    with engine(TINY) as run:
        assert apart(run(), plain_round(TINY)) < 1e-5
        assert apart(run(), plain_round(TINY)) < 1e-5


def test_the_necessary_work_of_one_layer_is_counted_by_hand():
    """Dim 8, 5 tokens, and a client of one layer, which is first and last: keys and values of five tokens, all
    else of one, and no gradient below the projection."""
    D, T, r = 8, 5, 8
    embed, head = 2 * 4 * 3 * 256 * D, 3 * 2 * D * 30
    forward = 2 * T * D * 2 * D + 2 * D * D + 2 * 2 * T * D + 2 * D * D + 2 * 2 * D * 4 * D
    adapters = 2 * r * (D + D) + 2 * r * (4 * D + D)
    one = embed + head + forward + 2 * 2 * D * 4 * D + 3 * adapters
    work = TINY.__class__("one", dim=8, patch=16, heads=2, images=3, layers=1, depths=(1,))
    assert necessary_flops(work) == 3 * one


@pytest.mark.parametrize("work", [DIM64, DIM192], ids=lambda work: work.name)
def test_one_round(benchmark, figures, work):
    if benchmark.disabled:
        pytest.skip("only timed with --benchmark-enable")
    facts = facts_of(
        benchmark, work, {name: make for name, (make, needed) in CONTENDERS.items() if not missing(*needed)}
    )
    rates = peak()
    floor = necessary_flops(work) / max(rates.values())
    title = f"{work.name}: {work.dim} channels, {work.tokens} tokens, depths {work.depths}, seconds a round"
    figures.add(
        work.name, {"contenders": facts, "floor": floor, "peak": rates, "flops": necessary_flops(work)},
        table(title, facts, floor),
    )  # fmt: skip


@pytest.mark.parametrize("work", [MINILM, SENTENCES, SMOLLM2], ids=lambda work: work.name)
def test_one_round_of_texts(benchmark, figures, work):
    """MiniLM and SmolLM2, or models of their shape, by fedbench and by Flower with peft."""
    if benchmark.disabled:
        pytest.skip("only timed with --benchmark-enable")
    there = {"cohort": cohort, "sequential": sequential}
    if not missing("flwr", "ray", "peft", "transformers"):
        there["Flower with peft"] = flower
    facts = facts_of(benchmark, work, there)
    title = f"{work.name}: at most {work.longest} tokens, depths {work.depths}, seconds a round"
    figures.add(work.name, {"contenders": facts}, table(title, facts))


def facts_of(benchmark, work, there):
    """Time the contenders in turn; their updates must agree."""
    times, last = {name: Times() for name in there}, {}
    with ExitStack() as stack:
        runs = {name: stack.enter_context(make(work)) for name, make in there.items()}

        def one_pass() -> None:
            for name, run in runs.items():
                last[name] = timed(run, times[name])

        one_pass()  # warm
        times.update({name: Times() for name in there})
        benchmark.pedantic(one_pass, rounds=PASSES[work.name])
    for name, updates in last.items():
        assert name in INEXACT or apart(updates, last["sequential"]) < 1e-4, f"{name} did another round"
    return {name: own.facts() for name, own in times.items()}
