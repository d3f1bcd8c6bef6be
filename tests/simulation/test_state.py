"""A state on disk: whatever is allowed in one comes back bit for bit, and what is not whole is refused."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.errors import UserError
from fedbench.seeding import generator
from fedbench.simulation.state import STRUCTURE, TENSORS, load, save
from fedbench.testing import check_state
from fedbench.testing.setups import cohort_of, same, setup_of, tiny_vit

pytestmark = pytest.mark.usefixtures("counted_once")

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int16,
    torch.uint8,
    torch.bool,
]


@st.composite
def tensors(draw):
    """Any dtype, no to three dimensions, some of them zero, the memory in order or not."""
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    numbers = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 9))))
    tensor = numbers.to(draw(st.sampled_from(DTYPES)))
    return tensor.transpose(0, -1) if len(shape) > 1 and draw(st.booleans()) else tensor


keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["a.b", "a/b", "$tensor", "$float", "$$", "~1", "", "__metadata__", "0"]
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | keys | tensors()
states = st.dictionaries(
    keys,
    st.recursive(leaves, lambda s: st.lists(s, max_size=3) | st.dictionaries(keys, s, max_size=3), max_leaves=12),
    max_size=4,
)


@given(states)
def test_a_state_comes_back_bit_for_bit(state):
    with tempfile.TemporaryDirectory() as folder:
        save(folder, state)
        found = load(folder)
    assert same(found, state)
    assert list(found) == list(state)
    check_state(found)


def test_not_a_number_and_the_infinities_are_kept(tmp_path):
    save(
        tmp_path, {"tensor": torch.tensor([math.nan, -math.inf, -0.0]), "plain": [math.nan, math.inf, -math.inf, -0.0]}
    )
    found = load(tmp_path)
    assert found["tensor"].isnan().tolist() == [True, False, False] and found["tensor"][2].signbit()
    assert math.isnan(found["plain"][0]) and found["plain"][1:] == [math.inf, -math.inf, 0.0]
    assert math.copysign(1, found["plain"][3]) == -1
    json.loads((tmp_path / STRUCTURE).read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_parts_of_one_memory_are_written_and_read_apart(tmp_path):
    both = torch.arange(6.0).reshape(2, 3)
    save(tmp_path, {"row": both[0], "all": both, "again": both, "column": both[:, 1], "wide": both[:1].expand(4, 3)})
    found = load(tmp_path)
    found["row"].zero_()
    assert torch.equal(found["all"], both) and torch.equal(found["again"], both)
    assert found["column"].tolist() == [1, 4] and found["wide"].shape == (4, 3)


@pytest.mark.parametrize(
    "name", ["depthfl", *(pytest.param(m, marks=pytest.mark.slow) for m in ("fedra", "inclusivefl"))]
)
def test_a_method_goes_on_from_a_loaded_state_as_from_its_own(registry, name, tmp_path):
    method = registry.make("method", {"name": name}, setup=setup_of(registry, tiny_vit(), [4, 3, 2]))
    state, _ = method.round(method.init(generator(0)), 0, cohort_of([4, 3, 2]), generator(0, 0))
    save(tmp_path, state)
    loaded = load(tmp_path)
    assert same(loaded, state)
    for t in (1, 2):
        state, loaded = (method.round(s, t, cohort_of([4, 3, 2]), generator(0, t))[0] for s in (state, loaded))
    assert same(loaded, state)


def test_equal_states_give_equal_files(tmp_path):
    state = {"b": [torch.ones(3), {"x": torch.zeros(2, dtype=torch.int64)}], "a": torch.ones(1, dtype=torch.bool)}
    for folder in ("one", "two"):
        save(tmp_path / folder, state)
    for file in (TENSORS, STRUCTURE):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [STRUCTURE, TENSORS]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"memory": {"x": (1, 2)}}, "/memory/x is a tuple"),
        ({"r": [{1: torch.ones(1)}]}, "/r/0 has the key 1, and keys are texts"),
        ({"x": torch.float32}, "/x is a dtype"),
        ([torch.ones(1)], "the state is a list"),
    ],
)
def test_what_is_no_state_is_named(tmp_path, state, message):
    with pytest.raises(UserError, match=message):
        save(tmp_path, state)
    assert not list(tmp_path.iterdir())


def torn(folder):
    file = folder / TENSORS
    file.write_bytes(file.read_bytes()[:-1])


def of_another_run(folder):
    save(folder / "other", {"x": torch.zeros(3), "y": 1})
    (folder / "other" / TENSORS).replace(folder / TENSORS)


def edited(**changes):
    def edit(folder):
        written = json.loads((folder / STRUCTURE).read_text())
        (folder / STRUCTURE).write_text(json.dumps(written | changes))

    return edit


DAMAGE = {
    "no structure": (lambda folder: (folder / STRUCTURE).unlink(), f"{STRUCTURE}: there is no such file"),
    "no tensors": (lambda folder: (folder / TENSORS).unlink(), f"{TENSORS}: there is no such file"),
    "torn tensors": (torn, f"{TENSORS}: torn, or not the file that {STRUCTURE}"),
    "of another run": (of_another_run, f"{TENSORS}: torn, or not the file that {STRUCTURE}"),
    "torn structure": (lambda folder: (folder / STRUCTURE).write_text('{"resu'), "not readable as JSON"),
    "foreign structure": (lambda folder: (folder / STRUCTURE).write_text("{}"), "not a file of fedbench"),
    "a later format": (edited(format=2), "state format 2, but this fedbench reads format 1"),
    "a tensor too many": (edited(state={"y": 1}), "not a state of fedbench"),
    "a tensor too few": (edited(state={"x": {"$tensor": "/z"}}), "not a state of fedbench"),
    "a list": (edited(state=[{"$tensor": "/x"}]), "not a state of fedbench"),
    "no tensor's name": (edited(state={"x": {"$tensor": []}}), "not a state of fedbench"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_not_whole_is_refused_by_name(tmp_path, name):
    save(tmp_path, {"x": torch.ones(3), "y": 1})
    damage, message = DAMAGE[name]
    damage(tmp_path)
    with pytest.raises(UserError) as refused:
        load(tmp_path)
    assert message in str(refused.value) and str(tmp_path) in str(refused.value)


def test_a_save_that_fails_leaves_what_was_there(tmp_path):
    save(tmp_path, {"x": torch.ones(3)})
    with pytest.raises(UserError):
        save(tmp_path, {"x": torch.zeros(3), "y": object()})
    assert load(tmp_path)["x"].tolist() == [1, 1, 1]


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        save(Path(tmp_path / "file"), {"x": torch.ones(1)})
