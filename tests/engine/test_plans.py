"""What of its layers a client holds and trains: both engines in float64 to 1e-12 over drawn plans, and by hand."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ragged import ragged, same

from fedbench.engine import cohort as fast
from fedbench.engine import sequential
from fedbench.models.backbone import HEAD, body_of
from fedbench.models.param_paths import trainers
from fedbench.testing.setups import CLASSES, tiny_mixer, tiny_vit
from fedbench.types import Exit, Job, Plan, Pull
from fedbench_plugins.adapters.lora import lora
from fedbench_plugins.objectives import cross_entropy

pytestmark = pytest.mark.usefixtures("counted_once")

R = 3
SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}
TAILS = {"tails": torch.tensor([1, R, 0]), "tail_strength": 0.3}
ADAMW = {"name": "adamw", "lr": 0.01, "momentum": 0.0, "weight_decay": 0.1}


def model_of(make=tiny_vit, targets="last_fc", dropout=0.0):
    model = body_of(make()).double()
    lora(rank=R, alpha=4, targets=targets, dropout=dropout)(model)
    model.add_classifier(HEAD, CLASSES)
    return model.double().eval()


def start_of(model, seed=0):
    """Values that are zero nowhere."""
    draw = torch.Generator().manual_seed(seed)
    tensors = {
        place: 0.3 * torch.randn(p.shape, generator=draw, dtype=torch.float64) for place, p in model.trained().items()
    }
    r = [{name: tensors[f"r/{j}/{name}"] for name in model.r(j)} for j in range(model.num_layers)]
    return {"r": r, "shared": {name: tensors[f"shared/{name}"] for name in model.shared()}}


def job_of(optimizer=SGD, clip=0.5, pull=None):
    return Job(0, 0, optimizer, clip, cross_entropy, pull)


def part_of(draw, mask):
    """A random subset of a mask."""
    bits = draw(st.lists(st.booleans(), min_size=mask.numel(), max_size=mask.numel()))
    return mask & torch.tensor(bits).view_as(mask)


@st.composite
def plans(draw, N=3, L=4):
    M = part_of(draw, torch.ones(N, L, dtype=torch.bool))
    trained = part_of(draw, M) if draw(st.booleans()) else None
    terms = part_of(draw, M[:, :, None].expand(N, L, R)) if draw(st.booleans()) else None
    held = terms if terms is not None else M[:, :, None].expand(N, L, R)
    return Plan(
        M,
        [[Exit(int(depth), HEAD)] for depth in M.sum(1)],
        trained=trained,
        terms=terms,
        trained_terms=part_of(draw, held) if draw(st.booleans()) else None,
        frozen=draw(st.sampled_from([(), ("*.lora_A",), ("*.lora_B",), ("attn.*",)])),
        scales=torch.tensor([0.5, 1.0, 2.5]) if draw(st.booleans()) else None,
    )


@settings(max_examples=10)
@given(
    plans(),
    st.sampled_from([(tiny_vit, "last_fc", 0.0), (tiny_vit, "reference", 0.3), (tiny_mixer, "last_fc", 0.3)]),
    st.sampled_from([SGD, ADAMW]),
    st.booleans(),
    st.sampled_from([None, Pull(0.7), Pull(0.0, **TAILS), Pull(0.7, **TAILS)]),
)
def test_drawn_plans_of_layers_terms_and_tensors_equal_the_oracle(plan, world, optimizer, added, pull):
    model = model_of(*world)
    start = start_of(model)
    if added:
        draw = torch.Generator().manual_seed(5)
        start["frozen"] = {"r/1/" + world_target(world): 0.2 * torch.randn(8, wide(world), generator=draw).double()}
    cohort = ragged([4, 4, 4], steps=[2, 1, 2], sizes=[3, 2])
    one, two = (
        vars(train(model, start, plan, cohort, job_of(optimizer, pull=pull))) | {"seconds": None}
        for train in (fast.train, sequential.train)
    )
    same(one, two)


def world_target(world):
    return "mlp.fc2" if world[0] is tiny_vit else "mlp_channels.fc2"


def wide(world):
    return 16 if world[0] is tiny_vit else 32


def full_plan(N=2, L=4, **parts):
    return Plan(torch.ones(N, L, dtype=torch.bool), [[Exit(L, HEAD)]] * N, **parts)


def test_what_is_not_trained_comes_back_as_the_server_gave_it():
    model = model_of()
    start = start_of(model)
    terms = torch.ones(2, 4, R, dtype=torch.bool)
    terms[0, :, 1:] = False  # the first holds one term, the second all
    plan = full_plan(terms=terms, frozen=("attn.*.lora_A",))
    up = sequential.train(model, start, plan, ragged([4, 4], steps=[2, 2], sizes=[3]), job_of(ADAMW))
    assert trainers(plan, "r/0/attn.proj.lora_A") == [] and len(up.r[0]["attn.proj.lora_A"]) == 0
    rows, begun = up.r[2]["mlp.fc2.lora_A"], start["r"][2]["mlp.fc2.lora_A"]
    assert torch.equal(rows[0, 1:], begun[1:]) and not torch.isclose(rows[0, 0], begun[0]).all()
    assert not torch.isclose(rows[1], begun).any(1).all()
    assert up.coordinates["r/2/mlp.fc2.lora_B"].expand(2, 8, R)[:, 0].tolist() == [[True, False, False], [True] * 3]


def test_a_client_with_one_term_trains_as_a_model_of_rank_one_does():
    """The same steps as a rank-one adapter, given the first row and column and the same scale."""
    whole, narrow = model_of(), body_of(tiny_vit()).double()
    lora(rank=1, alpha=4 / R)(narrow)
    narrow.add_classifier(HEAD, CLASSES)
    start, cohort = start_of(whole), ragged([4], steps=[3], sizes=[3])
    terms = torch.zeros(1, 4, R, dtype=torch.bool)
    terms[:, :, 0] = True
    cut = {**start, "r": [{n: v[:1] if n.endswith("A") else v[:, :1] for n, v in r_j.items()} for r_j in start["r"]]}
    up = sequential.train(whole, start, full_plan(1, terms=terms), cohort, job_of(ADAMW))
    small = sequential.train(narrow.double().eval(), cut, full_plan(1), cohort, job_of(ADAMW))
    for j in range(4):
        for name, rows in small.r[j].items():
            wide_rows = up.r[j][name]
            torch.testing.assert_close(wide_rows[:, :1] if name.endswith("A") else wide_rows[:, :, :1], rows)
    torch.testing.assert_close(up.shared["head.weight"], small.shared["head.weight"])


def test_a_tail_is_pulled_by_the_product_of_its_norms_and_nothing_else_is():
    """One step of plain descent with a loss of 0: strength ||B_tail|| / ||A_tail|| A_tail, and the same of B."""
    model = model_of()
    start, cohort = start_of(model), ragged([4, 4], steps=[1, 1], sizes=[3])
    pull = Pull(0.0, tails=torch.tensor([1, R]), tail_strength=0.3)
    plain = {"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}
    job = Job(0, 0, plain, None, lambda exits, y, t: 0.0 * exits[0].sum(), pull)
    for train in (fast.train, sequential.train):
        up = train(model, start, full_plan(2), cohort, job)
        A, B = (start["r"][2][f"mlp.fc2.lora_{factor}"] for factor in "AB")
        a, b = A[1:].norm(), B[:, 1:].norm()
        rows_A, rows_B = (up.r[2][f"mlp.fc2.lora_{factor}"] for factor in "AB")
        torch.testing.assert_close(rows_A[0], torch.cat([A[:1], A[1:] - 0.1 * 0.3 * b / a * A[1:]]))
        torch.testing.assert_close(rows_B[0], torch.cat([B[:, :1], B[:, 1:] - 0.1 * 0.3 * a / b * B[:, 1:]], 1))
        assert torch.equal(rows_A[1], A) and torch.equal(rows_B[1], B) and (up.loss == 0).all()


@pytest.mark.parametrize("trained", [[False] * 4, [False, True, False, False]])
def test_a_client_that_trains_nothing_tells_its_loss_and_stays(trained):
    """Beside one that trains a layer, and where nobody trains anything; with FedProx, whose pull is on nothing."""
    model = model_of()
    start, cohort = start_of(model), ragged([4, 4], steps=[2, 2], sizes=[3])
    plan = full_plan(trained=torch.tensor([trained, [False] * 4]), frozen=("head.*",))
    one, two = (train(model, start, plan, cohort, job_of(pull=Pull(0.7))) for train in (fast.train, sequential.train))
    same(vars(one) | {"seconds": None}, vars(two) | {"seconds": None})
    assert len(one.shared["head.weight"]) == 0 and len(one.r[1]["attn.proj.lora_A"]) == sum(trained)
    assert one.loss.isfinite().all()


def test_layers_that_run_frozen_are_run():
    """All layers are held, one is trained: its gradient is that of the whole model."""
    model = model_of()
    start, cohort = start_of(model), ragged([4], steps=[1], sizes=[3])
    trained = torch.tensor([[False, False, True, False]])
    up = fast.train(model, start, full_plan(1, trained=trained), cohort, job_of(clip=None))
    whole = sequential.train(model, start, full_plan(1), cohort, job_of(clip=None))
    assert [len(next(iter(r_j.values()))) for r_j in up.r] == [0, 0, 1, 0]
    torch.testing.assert_close(up.r[2], whole.r[2])
    torch.testing.assert_close(up.loss, whole.loss)


def test_a_frozen_addition_is_part_of_the_weight_and_leaves_no_trace():
    model = model_of()
    weight = model.blocks[1].mlp.fc2.weight
    before, start = weight.detach().clone(), start_of(model)
    addition = torch.linspace(-1, 1, weight.numel(), dtype=torch.float64).view_as(weight)
    cohort, plan = ragged([4], steps=[1], sizes=[3]), full_plan(1)
    added = fast.train(model, start | {"frozen": {"r/1/mlp.fc2": addition}}, plan, cohort, job_of())
    torch.testing.assert_close(weight, before + addition)
    plain = fast.train(model, start, plan, cohort, job_of())
    assert torch.equal(weight, before) and not torch.equal(added.loss, plain.loss)
