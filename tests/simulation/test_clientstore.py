from __future__ import annotations

import errno
import gc

import pytest
import torch

from fedbench.errors import UserError
from fedbench.simulation.checkpoint import Checkpoints, Progress
from fedbench.simulation.state import ClientStore, keys_of
from fedbench.testing.setups import same


def tensors(value=0.0):
    return {"body.weight": torch.full((2, 3), value).T, "n": torch.tensor([-0.0, float("nan"), value])}


def test_what_is_put_comes_back_bit_for_bit(tmp_path):
    store = ClientStore(tmp_path / "clients")
    found = store.get(store.put(tensors(2.5)))
    assert same(found, tensors(2.5)) and found["n"][0].signbit()
    found["n"].add_(1)
    assert same(store.get(store.put(tensors(2.5))), tensors(2.5))


def test_equal_tensors_have_one_key_and_others_another(tmp_path):
    store = ClientStore(tmp_path)
    assert store.put(tensors()) == store.put(dict(reversed(tensors().items())))
    assert store.put(tensors()) != store.put(tensors(1.0))
    store.settle()
    assert len(list(tmp_path.iterdir())) == 2


def test_tensors_come_back_in_one_order(tmp_path):
    store = ClientStore(tmp_path)
    key = store.put({str(i): torch.zeros(1) for i in reversed(range(10))})
    assert all(list(store.get(key)) == [str(i) for i in range(10)] for _ in range(5))


def test_torn_tensors_are_noticed_and_written_again(tmp_path):
    store = ClientStore(tmp_path)
    key = store.put(tensors())
    store.settle()
    file = tmp_path / f"{key}.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    for use in (store.get, lambda key: store.check([key])):
        with pytest.raises(UserError, match="torn"):
            use(key)
    assert store.put(tensors()) == key
    assert same(store.get(key), tensors())


@pytest.mark.parametrize("key", ["0" * 64, "", "../secret", "a/b"])
def test_a_key_that_nobody_put_is_refused(tmp_path, key):
    (tmp_path / "secret.safetensors").write_bytes(b"")
    store = ClientStore(tmp_path / "clients")
    with pytest.raises(UserError, match="not kept"):
        store.get(key)
    with pytest.raises(UserError, match="missing"):
        store.check([key])


def test_a_sweep_leaves_what_the_state_and_the_checkpoints_refer_to(tmp_path):
    store = ClientStore(tmp_path)
    live, pinned, _ = (store.put(tensors(value)) for value in (0.0, 1.0, 2.0))
    store.settle()
    store.put(tensors(3.0))
    (tmp_path / ".half.tmp").touch()
    store.pinned["a"] = frozenset([pinned])
    store.sweep({"clients": {"7": live}})
    assert (tmp_path / ".half.tmp").exists(), "another process may be writing it"
    store.sweep({"clients": {"7": live}}, torn=True)
    store.settle()
    assert {path.stem for path in tmp_path.iterdir()} == {live, pinned}
    store.pinned.clear()
    store.sweep({})
    assert not list(tmp_path.iterdir())


def test_a_state_of_another_kind_refers_to_nothing():
    assert keys_of({"clients": [1, 2]}) == keys_of({"clients": {"0": "short", "1": 3}}) == keys_of({}) == set()


def test_a_temporary_folder_is_made_when_needed_and_ends_with_the_store():
    store = ClientStore()
    store.sweep({})
    assert "folder" not in vars(store)
    folder = store.folder
    store.put(tensors())
    store.settle()
    assert list(folder.iterdir())
    del store
    gc.collect()
    assert not folder.exists()


def test_a_store_that_follows_reads_everything_and_writes_and_deletes_nothing(tmp_path):
    store = ClientStore(tmp_path)
    written, kept = store.put(tensors()), {"0": store.put(tensors(1.0))}
    store.settle()
    other = store.put(tensors(2.0))
    store.follow()
    own = store.put(tensors(3.0))
    there = set(tmp_path.iterdir())
    assert all(
        same(store.get(key), tensors(value))
        for key, value in [(written, 0.0), (kept["0"], 1.0), (other, 2.0), (own, 3.0)]
    )
    store.sweep({"clients": {**kept, "1": own}})
    assert set(tmp_path.iterdir()) == there and same(store.get(own), tensors(3.0))


def test_a_store_that_follows_keeps_no_copy_of_what_the_first_process_has_written(tmp_path):
    first, follower = ClientStore(tmp_path), ClientStore(tmp_path)
    follower.follow()
    assert (key := first.put(tensors())) == follower.put(tensors())
    first.settle()
    follower.sweep({"clients": {"0": key}})
    (tmp_path / f"{key}.safetensors").unlink()
    with pytest.raises(UserError, match="not kept"):
        follower.get(key)


def test_a_store_that_follows_needs_no_folder():
    store = ClientStore()
    store.follow()
    key = store.put(tensors())
    store.sweep({"clients": {"0": key}})
    assert same(store.get(key), tensors()) and "folder" not in vars(store)


def test_a_checkpoint_names_nothing_that_is_not_on_the_disk(tmp_path, monkeypatch):
    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    checkpoints = Checkpoints(tmp_path, "0" * 12, "cpu")
    store = checkpoints.store
    first = Progress(1, {"clients": {"0": store.put({"w": torch.zeros(1)})}})
    checkpoints.write(first)
    store.check(first.state["clients"].values())
    second = Progress(2, {"clients": {"0": store.put({"w": torch.ones(1)})}})
    monkeypatch.setattr("fedbench.simulation.state.settle", full)
    with pytest.raises(UserError, match=r"cannot be written \(No space left on device\)"):
        checkpoints.write(second)
    assert Checkpoints(tmp_path, "0" * 12, "cpu").latest() == (first, [])
