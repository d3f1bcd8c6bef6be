"""What layers.parquet says, against the definition in docs/results.md computed with whole matrices."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedbench.models.adapter import LowRank
from fedbench.models.backbone import Blocks
from fedbench.simulation.layer_effects import effects
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit, untouched
from fedbench.types import Plan, Report, Uploads

pytestmark = pytest.mark.usefixtures("counted_once")

N, L, RANK, ALPHA = 3, 2, 2, 6.0
LORA = {"name": "lora", "rank": RANK, "alpha": ALPHA}


def attached(registry) -> Blocks:
    setup = setup_of(registry, tiny_vit(depth=L), [L] * N, LORA)
    setup.adapter(setup.backbone)
    return setup.backbone


def random_round(model: Blocks, M: torch.Tensor, arrived: torch.Tensor, examples: list[int], seed: int = 0):
    """The states around an invented round, and its report."""
    draw = torch.Generator().manual_seed(seed)
    r = [
        {name: torch.randn(p.shape, generator=draw, dtype=p.dtype) for name, p in model.r(j).items()} for j in range(L)
    ]
    new = [{name: value + torch.randn(value.shape, generator=draw) for name, value in r_j.items()} for r_j in r]
    sent = [
        {name: torch.randn((int(M[:, j].sum()), *value.shape), generator=draw) for name, value in r_j.items()}
        for j, r_j in enumerate(r)
    ]
    cohort = cohort_of([L] * len(M), examples)
    uploads = Uploads(sent, {}, arrived, torch.zeros(len(M)), cohort.steps, torch.zeros(len(M)))
    return {"r": r}, {"r": new}, Report(Plan(M, [()] * len(M)), cohort, uploads, [])


def dense(report: Report, j: int, weights: torch.Tensor) -> tuple[float, float]:
    """Aggregation error and product norm of layer j, with every (out, in) matrix formed."""
    up, M = report.uploads, report.plan.M
    rows = [i for i, n in enumerate(M[:, j].nonzero().flatten().tolist()) if up.arrived[n]]
    share = weights[M[:, j]][rows] / weights[M[:, j]][rows].sum()
    errors, norms = [], []
    for name in up.r[j]:
        if name.endswith("lora_A"):
            A = [up.r[j][name][i].double() for i in rows]
            B = [up.r[j][name.replace("lora_A", "lora_B")][i].double() for i in rows]
            product = sum(s * b @ a for s, a, b in zip(share, A, B, strict=True))
            of_means = sum(s * b for s, b in zip(share, B, strict=True)) @ sum(
                s * a for s, a in zip(share, A, strict=True)
            )
            errors.append(ALPHA / RANK * (product - of_means).norm())
            norms.append(ALPHA / RANK * product.norm())
    return float(torch.stack(errors).norm()), float(torch.stack(norms).norm())


masks = st.lists(st.lists(st.booleans(), min_size=L, max_size=L), min_size=1, max_size=4)


@settings(max_examples=8)
@given(
    masks=masks, lost=st.sets(st.integers(0, 3)), weights=st.sampled_from(["examples", "uniform"]), seed=st.integers(0)
)
def test_rows_agree_with_the_definition(registry, masks, lost, weights, seed):
    model = attached(registry)
    M = torch.tensor(masks)
    arrived = torch.tensor([n not in lost for n in range(len(M))])
    examples = [4, 1, 9, 2][: len(M)]
    before, after, report = random_round(model, M, arrived, examples, seed % 2**31)
    with untouched(before, after, report.uploads.r, what="effects"):
        rows = effects(model, before, after, report, weights)
    w = torch.tensor(examples).double() if weights == "examples" else torch.ones(len(M)).double()
    assert [row.layer for row in rows] == [0, 1]
    for j, row in enumerate(rows):
        old, new, up = before["r"][j], after["r"][j], report.uploads.r[j]
        moved = math.sqrt(sum(float(((new[name] - old[name]) ** 2).sum()) for name in old))
        assert row.update_norm == pytest.approx(moved)
        came = arrived[M[:, j]].nonzero().flatten().tolist()
        assert row.holders == len(came)
        if not came:
            assert all(
                math.isnan(getattr(row, name)) for name in ("client_update_norm", "aggregation_error", "product_norm")
            )
            continue
        own = [math.sqrt(sum(float(((up[name][i] - old[name]) ** 2).sum()) for name in old)) for i in came]
        assert row.client_update_norm == pytest.approx(sum(own) / len(own))
        error, norm = dense(report, j, w)
        assert row.aggregation_error == pytest.approx(error, abs=1e-7 * norm)
        assert row.product_norm == pytest.approx(norm)


def test_of_weights_that_are_not_known_the_changes_are_told_alone(registry):
    round = random_round(attached(registry), torch.ones(3, L) > 0, torch.ones(3) > 0, [5, 2, 4])
    known, unknown = (effects(attached(registry), *round, weights) for weights in ("examples", None))
    for row, other in zip(known, unknown, strict=True):
        assert (other.holders, other.update_norm) == (row.holders, row.update_norm)
        assert other.client_update_norm == row.client_update_norm > 0
        assert math.isnan(other.aggregation_error) and math.isnan(other.product_norm)


@pytest.mark.parametrize("clients", [1, 3])
def test_equal_clients_are_averaged_without_an_error(registry, clients):
    model = attached(registry)
    before, after, report = random_round(
        model, torch.ones(clients, L) > 0, torch.ones(clients) > 0, [5, 2, 4][:clients]
    )
    for r_j in report.uploads.r:
        for value in r_j.values():
            value[:] = value[0].clone()
    for row in effects(model, before, after, report, "examples"):
        assert row.aggregation_error <= 1e-12 * row.product_norm


def test_a_client_that_returned_nothing_counts_nowhere(registry):
    model = attached(registry)
    M, arrived = torch.ones(3, L) > 0, torch.tensor([True, False, True])
    before, after, report = random_round(model, M, arrived, [4, 100, 9])
    rows = effects(model, before, after, report, "examples")
    for r_j in report.uploads.r:
        for value in r_j.values():
            value[1] = float("nan")
    assert effects(model, before, after, report, "examples") == rows


def by_name(values: dict[str, torch.Tensor], letter: str) -> list[torch.Tensor]:
    return [value.double() for name, value in values.items() if name.endswith(f"lora_{letter}")]


def test_products_are_of_the_terms_held_with_the_factors_given(registry):
    """Clients of ranks 2 and 1, the second with a factor of its own; only the first trains layer 1."""
    model = attached(registry)
    M, trained = torch.ones(2, L) > 0, torch.tensor([[1, 1], [1, 0]]) > 0
    before, after, report = random_round(model, trained, torch.ones(2) > 0, [3, 1])
    terms = torch.tensor([[True, True], [True, False]])[:, None].expand(2, L, 2)
    plan = Plan(M, [()] * 2, trained=trained, terms=terms, scales=torch.tensor([3.0, 5.0], dtype=torch.float64))
    first, second = effects(model, before, after, replace(report, plan=plan), "examples")
    assert (first.holders, second.holders) == (2, 1)
    errors, norms = [], []
    up, new = report.uploads.r[0], after["r"][0]
    for B, A, B_new, A_new in zip(*(by_name(of, x) for of in (up, new) for x in "BA"), strict=True):
        product = 0.75 * 3 * B[0] @ A[0] + 0.25 * 5 * B[1][:, :1] @ A[1][:1]
        errors.append((product - ALPHA / RANK * B_new @ A_new).norm())
        norms.append(product.norm())
    assert first.aggregation_error == pytest.approx(float(torch.stack(errors).norm()))
    assert first.product_norm == pytest.approx(float(torch.stack(norms).norm()))
    assert math.isnan(first.client_update_norm) and not math.isnan(first.update_norm)


def test_where_clients_train_some_terms_what_counts_is_what_the_server_made_of_all(registry):
    model = attached(registry)
    before, after, report = random_round(model, torch.ones(2, L) > 0, torch.ones(2) > 0, [3, 1])
    trained = torch.tensor([[True, False], [False, True]])[:, None].expand(2, L, 2)
    plan = replace(report.plan, trained_terms=trained)
    row = effects(model, before, after, replace(report, plan=plan), "examples")[0]
    up, new = report.uploads.r[0], after["r"][0]
    errors = [
        (0.75 * B[0] @ A[0] + 0.25 * B[1] @ A[1] - B_new @ A_new).norm() * ALPHA / RANK
        for B, A, B_new, A_new in zip(*(by_name(of, x) for of in (up, new) for x in "BA"), strict=True)
    ]
    assert row.aggregation_error == pytest.approx(float(torch.stack(errors).norm()))
    assert row.client_update_norm > 0


def test_what_nobody_trained_is_no_change(registry):
    """A is frozen, and of B client 0 trained its first row: what else the rows hold counts nowhere."""
    model = attached(registry)
    M = torch.ones(2, L) > 0
    before, after, report = random_round(model, M, torch.ones(2) > 0, [3, 1])
    masks = {}
    for j, r_j in enumerate(report.uploads.r):
        for name, value in r_j.items():
            if name.endswith("lora_A"):
                r_j[name] = value[:0]
            else:
                masks[f"r/{j}/{name}"] = torch.ones(2, *value.shape[1:]) > 0
                masks[f"r/{j}/{name}"][0, 1:] = False
    plan, uploads = Plan(M, [()] * 2, frozen=["*.lora_A"]), replace(report.uploads, coordinates=masks)
    row = effects(model, before, after, replace(report, plan=plan, uploads=uploads), "examples")[0]
    assert row.holders == 2 and row.aggregation_error <= 1e-12 * row.product_norm
    moved = [B - old for B, old in zip(by_name(report.uploads.r[0], "B"), by_name(before["r"][0], "B"), strict=True)]
    each = [math.sqrt(sum(float(rows.square().sum()) for rows in (d[0][:1] for d in moved))),
            math.sqrt(sum(float(d[1].square().sum()) for d in moved))]  # fmt: skip
    assert row.client_update_norm == pytest.approx(sum(each) / 2)


def test_what_clients_keep_has_no_part_in_it(registry):
    """B stays at home: no product is the server's to lose, and A alone has moved."""
    model = attached(registry)
    before, after, report = random_round(model, torch.ones(2, L) > 0, torch.ones(2) > 0, [3, 1])
    kept = replace(report, plan=replace(report.plan, kept=["*.lora_B"]))
    for j, row in enumerate(effects(model, before, after, kept, "examples")):
        moved = [
            rows - old
            for rows, old in zip(by_name(report.uploads.r[j], "A"), by_name(before["r"][j], "A"), strict=True)
        ]
        each = [math.sqrt(sum(float(change[n].square().sum()) for change in moved)) for n in range(2)]
        assert row.client_update_norm == pytest.approx(sum(each) / 2)
        assert row.holders == 2 and math.isnan(row.aggregation_error) and math.isnan(row.product_norm)
    kept = replace(report, plan=replace(report.plan, kept=["*"]))
    assert effects(model, before, after, kept, "examples") == []


def test_what_the_server_adds_to_frozen_weights_is_no_error(registry):
    model = attached(registry)
    before, after, report = random_round(model, torch.ones(2, L) > 0, torch.ones(2) > 0, [3, 1])
    before["frozen"], after["frozen"] = {}, {}
    for j in range(L):
        paths = [name.removesuffix(".lora_B") for name in after["r"][j] if name.endswith("lora_B")]
        factors_of = (by_name(of, x) for of in (report.uploads.r[j], after["r"][j]) for x in "BA")
        for path, B, A, B_new, A_new in zip(paths, *factors_of, strict=True):
            mean = 0.75 * B[0] @ A[0] + 0.25 * B[1] @ A[1]
            before["frozen"][f"r/{j}/{path}"] = torch.ones_like(mean)
            after["frozen"][f"r/{j}/{path}"] = 1 + ALPHA / RANK * (mean - B_new @ A_new)
    for row in effects(model, before, after, report, "examples"):
        assert row.aggregation_error <= 1e-10 < row.product_norm
    del before["frozen"], after["frozen"]
    assert all(row.aggregation_error > 1 for row in effects(model, before, after, report, "examples"))


class Scaled(nn.Module):
    """An adapter without factors: y = W x * s."""

    def __init__(self, frozen: nn.Module) -> None:
        super().__init__()
        self.frozen, self.s = frozen, nn.Parameter(torch.ones(frozen.out_features, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) * self.s


def test_an_adapter_without_factors_has_norms_and_no_error():
    model = Blocks(tiny_vit(depth=L)).double()
    for block in model.blocks:
        block.mlp.fc2 = Scaled(block.mlp.fc2)
    before, after, report = random_round(model, torch.ones(N, L) > 0, torch.ones(N) > 0, [1, 2, 3])
    for row in effects(model, before, after, report, "examples"):
        assert row.client_update_norm > 0 and row.update_norm > 0
        assert math.isnan(row.aggregation_error) and math.isnan(row.product_norm)


@pytest.mark.parametrize("r", [None, 4, [1, 2], [{}, {}], [{"other": torch.zeros(1)}] * L])
def test_a_state_without_adapters_by_layer_has_no_rows(registry, r):
    model = attached(registry)
    _, _, report = random_round(model, torch.ones(N, L) > 0, torch.ones(N) > 0, [1, 2, 3])
    state = {} if r is None else {"r": r}
    assert effects(model, state, state, report, "examples") == []


def test_a_state_with_a_row_for_each_client_has_no_rows(registry):
    """It has the uploads' names, and other shapes: what is one global value there is not known."""
    model = attached(registry)
    before, after, report = random_round(model, torch.ones(N, L) > 0, torch.ones(N) > 0, [1, 2, 3])
    assert effects(model, before, after, report, "examples")
    each = [{name: torch.stack([value] * N) for name, value in r_j.items()} for r_j in before["r"]]
    assert effects(model, {"r": each}, {"r": each}, report, "examples") == []


class Derived(Scaled):
    """A low-rank adapter whose factors are no parameters of its own: nobody can say which rows are whose."""

    def low_rank(self) -> LowRank:
        return LowRank(self.frozen.weight, None, self.s[None] * 2, self.s[:, None] * 2, 1.0, 0.0)


def test_factors_that_are_no_parameters_are_left_out():
    model = Blocks(tiny_vit(depth=L)).double()
    for block in model.blocks:
        block.mlp.fc2 = Derived(block.mlp.fc2)
    before, after, report = random_round(model, torch.ones(N, L) > 0, torch.ones(N) > 0, [1, 2, 3])
    assert all(math.isnan(row.product_norm) for row in effects(model, before, after, report, "examples"))
