"""Coded messages in a round: what arrives at clients and server, by hand, in both engines, charged and refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from command import write_suite

from fedbench.engine import cohort as fast
from fedbench.engine import sequential
from fedbench.errors import NotApplicable, UserError
from fedbench.models.backbone import HEAD, body_of
from fedbench.models.codec import Int8, TopK
from fedbench.models.param_paths import holders, places, trainers
from fedbench.runner.runner import load
from fedbench.seeding import generator
from fedbench.simulation.coding import coded_down, coded_up, through_codecs
from fedbench.simulation.simulation import Simulation
from fedbench.testing.setups import CLASSES, cohort_of, tiny_vit
from fedbench.types import GLOBAL, Exit, Job, Plan
from fedbench_plugins.adapters.lora import lora
from fedbench_plugins.objectives import cross_entropy

pytestmark = pytest.mark.usefixtures("counted_once")

SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}
M = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 1], [1, 0, 0, 0]], dtype=torch.bool)


@pytest.fixture(scope="module")
def model():
    made = body_of(tiny_vit()).double()
    lora(rank=3, alpha=4, targets="last_fc", dropout=0.0)(made)
    made.add_classifier(HEAD, CLASSES)
    return made.double().eval()


@pytest.fixture(scope="module")
def start(model):
    draw = torch.Generator().manual_seed(0)
    made = {p: 0.3 * torch.randn(v.shape, generator=draw, dtype=torch.float64) for p, v in model.trained().items()}
    r = [{name: made[f"r/{j}/{name}"] for name in model.r(j)} for j in range(4)]
    return {"r": r, "shared": {name: made[f"shared/{name}"] for name in model.shared()}}


def plan_of(**more):
    return Plan(M, [[Exit(int(depth), HEAD)] for depth in M.sum(1)], **more)


def job_of(**coded):
    return Job(2, 0, SGD, None, cross_entropy, **coded)


COHORT = cohort_of([4, 2, 1])


def flat(up):
    return dict(places({"r": up.r, "shared": up.shared}))


@pytest.mark.parametrize("terms", [False, True])
def test_a_client_starts_from_the_largest_numbers_of_what_it_holds(model, start, terms):
    held = M[:, :, None] & torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]], dtype=torch.bool)[:, None, :]
    plan = plan_of(terms=held if terms else None)
    begun = dict(places(coded_down(TopK(0.2), model, start, plan, COHORT, 2, 0)))
    given = dict(places(start))
    for n in range(3):
        mine = {p: value for p, value in given.items() if n in holders(plan, p) and not p.startswith("shared/head")}
        if terms:
            mine = {
                p: v[:][held[n, int(p[2])]] if p.endswith("A") else v[:, held[n, int(p[2])]] for p, v in mine.items()
            }
        numbers = torch.cat([value.flatten() for value in mine.values()])
        least = numbers.abs().sort(descending=True).values[int(0.2 * len(numbers)) - 1]
        for place in mine:
            row = begun[place][holders(plan, place).index(n)]
            if terms:
                at = held[n, int(place[2])]
                row = row[at] if place.endswith("A") else row[:, at]
            assert torch.equal(row, torch.where(mine[place].abs() >= least, mine[place], 0.0))
    assert torch.equal(begun["shared/head.weight"], given["shared/head.weight"])


def test_what_a_client_draws_or_keeps_is_not_coded(model, start):
    plan = plan_of(frozen=["*.lora_A"], fixed=["*.lora_A"], kept=["head.*"])
    begun = dict(places(coded_down(Int8(), model, start, plan, COHORT, 2, 0)))
    given = dict(places(start))
    for place, value in given.items():
        same = begun[place].shape == value.shape and torch.equal(begun[place], value)
        assert same == (place.endswith("lora_A") or place.startswith("shared/head")), place
    up = sequential.train(model, start, plan, COHORT, job_of())
    arrived = flat(coded_up(Int8(), up, start, start, plan, COHORT, 2, 0))
    for place, rows in flat(up).items():
        if len(rows):
            assert torch.equal(arrived[place], rows) == place.startswith("shared/head"), place


@pytest.mark.parametrize("codec", [Int8(), TopK(0.3)])
def test_the_server_adds_the_coded_updates_to_its_own(model, start, codec):
    plan = plan_of()
    begun = coded_down(TopK(0.5), model, start, plan, COHORT, 2, 0)
    up = sequential.train(model, begun, plan, COHORT, job_of())
    arrived, trained = flat(coded_up(codec, up, start, begun, plan, COHORT, 2, 0)), flat(up)
    given, first = dict(places(start)), dict(places(begun))
    for n in range(3):
        mine = [p for p in trained if n in trainers(plan, p)]

        def own(rows, p, n=n):
            return rows[p][trainers(plan, p).index(n)]

        updates = {p: own(trained, p) - (own(first, p) if first[p].dim() > given[p].dim() else given[p]) for p in mine}
        sent = codec.decoded(updates, lambda place, n=n: generator(0, 2, n, f"uploads/{place}"))
        for place in mine:
            assert torch.equal(own(arrived, place), given[place] + sent[place])


def test_the_server_itself_sends_nothing_and_codes_nothing(model, start):
    own = replace(COHORT, ids=[GLOBAL, 1, 2])
    up = sequential.train(model, start, plan_of(), own, job_of())
    arrived = flat(coded_up(Int8(), up, start, start, plan_of(), own, 2, 0))
    assert torch.equal(arrived["r/0/attn.proj.lora_B"][0], flat(up)["r/0/attn.proj.lora_B"][0])
    begun = dict(places(coded_down(Int8(), model, start, plan_of(), own, 2, 0)))
    assert torch.equal(begun["r/0/attn.proj.lora_B"][0], start["r"][0]["attn.proj.lora_B"])
    assert not torch.equal(begun["r/0/attn.proj.lora_B"][1], start["r"][0]["attn.proj.lora_B"])


@pytest.mark.parametrize("coded", [{"codec": "int8"}, {"codec": "topk", "density": 0.2}])
def test_both_engines_send_the_same(model, start, coded):
    jobs = job_of(uploads=coded, downloads=coded)
    one, other = (
        flat(through_codecs(train, model, start, plan_of(), COHORT, jobs)) for train in (sequential.train, fast.train)
    )
    for place, rows in one.items():
        torch.testing.assert_close(other[place], rows, rtol=0, atol=1e-12)


# --- in suites ----------------------------------------------------------------------------------------------------


def cells(folder, plugins, methods, changes=None):
    return {cell.method: cell for cell in load(write_suite(folder, methods, changes or {}), plugins).points()}


def test_clients_are_charged_what_is_sent(tmp_path, plugins):
    """Of the tiny model by hand: client 0 trains 2 layers, client 1 one."""
    both = "uploads: {codec: topk, density: 0.1}, downloads: {codec: int8}"
    changes = {"optimizer: {name": f"{both}, optimizer: {{name"}
    found = cells(tmp_path, plugins, "fedra", changes)["fedra"]
    simulation = Simulation(found.config, plugins)
    _, rounds = simulation.run()
    model, r0 = simulation.model, simulation.model.r(0)
    head = [p for name, p in model.shared().items() if name.startswith("head")]
    for row in rounds:
        layers = len(row["layers"])
        tensors = [*(p for p in r0.values() for _ in range(layers)), *head]
        n = sum(p.numel() for p in tensors)
        k = max(1, int(0.1 * n))
        assert row["bytes_up"] == 4 * k + min(4 * k, -(-n // 8))
        assert row["bytes_down"] == model.frozen_bytes(layers) + n + 4 * len(tensors)


def test_a_cell_without_codecs_is_the_cell_it_was(tmp_path, plugins):
    plain, null = (
        cells(tmp_path, plugins, "fedra", changes)["fedra"].config
        for changes in ({}, {"optimizer: {name": "uploads: null, downloads: null, optimizer: {name"})
    )
    assert plain == null and not {"uploads", "downloads"} & plain["train"].keys()


@pytest.mark.parametrize("engine", ["sequential", "cohort"])
def test_methods_of_every_family_code_their_uploads(tmp_path, plugins, engine):
    changes = {"optimizer: {name": "uploads: {codec: int8}, optimizer: {name"}
    for cell in cells(tmp_path, plugins, "fedra, flora, fedavg, heterofl, fedsa_lora, ditto", changes).values():
        coded, plain = ({**cell.config, "engine": engine} for _ in range(2))
        plain["train"] = {key: value for key, value in cell.config["train"].items() if key != "uploads"}
        for config in (coded, plain):
            if cell.method in ("fedsa_lora", "ditto"):
                config["evaluation"] = {**config["evaluation"], "by": "client"}
        sent, whole = ([row["bytes_up"] for row in Simulation(c, plugins).run()[1]] for c in (coded, plain))
        assert all(0 < few < 0.5 * many for few, many in zip(sent, whole, strict=True)), cell.method


@pytest.mark.parametrize(
    ("method", "way", "why"),
    [
        ("fedavg", "downloads", "whole models"),
        ("heterofl", "downloads", "slices"),
        ("fedv", "uploads", "features and gradients"),
        ("fedv", "downloads", "features and gradients"),
    ],
)
def test_methods_that_cannot_are_not_applicable(tmp_path, plugins, method, way, why):
    changes = {"optimizer: {name": f"{way}: {{codec: int8}}, optimizer: {{name"}
    with pytest.raises(NotApplicable, match=rf"train\.{way}: .*{why}.*set it to null"):
        Simulation(cells(tmp_path, plugins, method, changes)[method].config, plugins)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("{codec: int4}", '"int8" or "topk"'),
        ("{codec: topk}", "topk needs a density, such as 0.1"),
        ("{codec: int8, density: 0.5}", "int8 has no density"),
        ("{density: 0.5}", "needs codec: int8 or topk"),
        ("{codec: topk, density: 0}", "a number above 0 and at most 1"),
    ],
)
def test_what_is_no_codec_is_refused(tmp_path, plugins, value, why):
    with pytest.raises(UserError, match=why):
        cells(tmp_path, plugins, "fedra", {"optimizer: {name": f"uploads: {value}, optimizer: {{name"})


def test_a_method_may_have_a_codec_of_its_own(tmp_path, plugins):
    methods = "fedra, {name: coded, extends: fedra, train: {uploads: {codec: int8}}}"
    found = cells(tmp_path, plugins, methods)
    assert "uploads" not in found["fedra"].config["train"]
    assert found["coded"].config["train"]["uploads"] == {"codec": "int8"}
