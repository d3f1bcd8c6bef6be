"""Codecs on a few numbers, by hand, and what they promise of any."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.errors import NotApplicable
from fedbench.models.codec import Int8, TopK, codec_of, refuse_coded
from fedbench.seeding import generator


def draw(place, seed=0):
    return generator(seed, use=place)


def numbers(n, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_int8_sends_the_largest_number_and_zero_as_they_are():
    arrived = Int8().decoded({"a": torch.tensor([-127.0, 0.0, 12.0, 63.5])}, draw)["a"]
    assert arrived[:3].tolist() == [-127.0, 0.0, 12.0] and arrived[3] in (63.0, 64.0)


def test_int8_is_right_on_average_and_off_by_one_step_at_most():
    x = numbers(50)
    step = x.abs().max() / 127
    arrived = torch.stack([Int8().decoded({"a": x}, lambda place, s=s: draw(place, s))["a"] for s in range(400)])
    assert ((arrived - x).abs() <= step * (1 + 1e-6)).all()
    assert ((arrived.mean(0) - x).abs() < 5 * step / (2 * 400**0.5)).all()  # a step's deviation is half of it at most


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20))
def test_int8_has_at_most_255_values(values):
    x = torch.tensor(values, dtype=torch.float64)
    steps = Int8().decoded({"a": x}, draw)["a"] / (x.abs().max().double() / 127).float().double().clamp(min=1e-300)
    assert (steps - steps.round()).abs().max() < 1e-6 and steps.abs().max() <= 127 + 1e-6


def test_each_tensor_has_its_own_scale_and_draws_and_zeros_stay_zeros():
    message = {"a": numbers(30), "b": 1000 * numbers(30), "zero": torch.zeros(3), "none": torch.zeros(0)}
    arrived = Int8().decoded(message, draw)
    assert arrived["zero"].tolist() == [0, 0, 0] and arrived["none"].shape == (0,)
    assert not torch.equal(arrived["b"], 1000 * arrived["a"])
    assert torch.equal(arrived["a"], Int8().decoded({"a": message["a"]}, draw)["a"])  # whatever else is sent


def test_topk_sends_the_largest_of_all_tensors_together():
    message = {"a": torch.tensor([[1.0, -5.0], [0.5, 2.0]]), "b": torch.tensor([3.0, -0.1])}
    arrived = TopK(0.5).decoded(message, draw)
    assert arrived["a"].tolist() == [[0, -5.0], [0, 2.0]] and arrived["b"].tolist() == [3.0, 0]


def test_topk_sends_one_number_at_least_and_of_equal_ones_the_first():
    assert TopK(0.01).decoded({"a": torch.tensor([2.0, -2.0, 2.0])}, draw)["a"].tolist() == [2.0, 0, 0]
    assert TopK(1.0).decoded({"a": torch.tensor([2.0, 0.0])}, draw)["a"].tolist() == [2.0, 0]
    assert TopK(0.5).decoded({}, draw) == {}


def test_what_is_not_finite_is_still_seen_by_the_server():
    broken = {"a": torch.tensor([1.0, float("nan"), 2.0]), "b": torch.ones(7)}
    for codec in (Int8(), TopK(0.1)):
        assert not torch.cat([*codec.decoded(broken, draw).values()]).isfinite().all()


def test_bytes_by_hand():
    """int8: a byte for each number and 4 for each tensor's scale. topk: 4 for each of k numbers, and their positions as
    4 each or as a bit for each of all, whichever is less."""
    assert Int8().nbytes([(100, 4), (7, 4), (0, 4)]) == 100 + 4 + 7 + 4
    assert TopK(0.25).nbytes([(60, 4), (40, 4)]) == 25 * 4 + 13
    assert TopK(0.01).nbytes([(600, 4), (400, 4)]) == 10 * 4 + 10 * 4
    assert TopK(0.5).nbytes([]) == 0


MESSAGE = {"a": numbers(30).float(), "b": numbers(7).view(7, 1).float(), "zero": torch.zeros(3), "none": torch.zeros(0)}


@pytest.mark.parametrize("codec", [Int8(), TopK(0.5), TopK(0.03), TopK(1e-9)])
@pytest.mark.parametrize("message", [MESSAGE, {"zero": torch.zeros(3)}, {"none": torch.zeros(0)}, {}])
def test_what_crosses_is_opened_as_simulated_and_has_the_bytes_that_are_charged(codec, message):
    crossed = codec.encoded(message, draw)
    opened, decoded = codec.opened(crossed, message), codec.decoded(message, draw)
    assert opened.keys() == message.keys()
    assert all(torch.equal(opened[p], decoded[p]) and opened[p].dtype == x.dtype for p, x in message.items())
    assert sum(x.nbytes for x in crossed.values()) == codec.nbytes((x.numel(), 4) for x in message.values())


@pytest.mark.parametrize("codec", [Int8(), TopK(0.5), TopK(0.03)])
def test_what_another_has_made_is_refused(codec):
    crossed = codec.encoded(MESSAGE, draw)
    for name, value in crossed.items():
        for other in (value.double(), torch.cat([value.flatten(), value.flatten()[:1]]), value.flatten()[:0]):
            if other.shape != value.shape or other.dtype != value.dtype:
                with pytest.raises(ValueError, match="another shape or type"):
                    codec.opened({**crossed, name: other}, MESSAGE)
        with pytest.raises(ValueError, match="other tensors"):
            codec.opened({key: value for key, value in crossed.items() if key != name}, MESSAGE)
    with pytest.raises(ValueError, match="other tensors"):
        codec.opened({**crossed, "more": torch.zeros(1)}, MESSAGE)


@pytest.mark.parametrize(("density", "wrong"), [(0.03, -1), (0.03, 40), (0.5, 0)])
def test_positions_that_no_number_has_are_refused(density, wrong):
    crossed = TopK(density).encoded(MESSAGE, draw)
    with pytest.raises(ValueError, match="positions"):
        TopK(density).opened({**crossed, "positions": torch.full_like(crossed["positions"], wrong)}, MESSAGE)


def test_a_setting_names_its_codec():
    assert codec_of(None) is None and codec_of({"codec": "int8"}) == Int8()
    assert codec_of({"codec": "topk", "density": 0.1}) == TopK(0.1)


def test_a_method_can_refuse_them():
    refuse_coded({"uploads": {"codec": "int8"}}, ["downloads"], "why")
    with pytest.raises(NotApplicable, match=r"train\.uploads: why; set it to null"):
        refuse_coded({"uploads": {"codec": "int8"}}, ["uploads", "downloads"], "why")
