"""The largest size that fits: three clients by hand, and what holds for any numbers."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fedbench.devices.fitting import Fit, Work, fitted, offered
from fedbench.method import Method
from fedbench.types import ClientCost, Device, Size

SERVER = Device("server", 0, 1e3, 1e3, 1.0, 1.0)
PHONE = Device("phone", memory=250, flops=100.0, flops_bf16=1000.0, down=10.0, up=5.0)
LAPTOP, BOARD = replace(PHONE, name="laptop", memory=400, flops=50.0), replace(PHONE, name="board", memory=99)
THREE, WORKS = [PHONE, LAPTOP, BOARD], [Work(10, 2)] * 3


def cost_of(capacity: int, t: int) -> ClientCost:
    """100 bytes of memory, 10 FLOPs an image and 20 bytes down and 10 up for a layer."""
    return ClientCost(10 * capacity, 20 * capacity, 10 * capacity, 100 * capacity)


ONE_TO_THREE = [Size(1), Size(2), Size(3)]


def method(cost=cost_of, sizes=ONE_TO_THREE) -> Method:
    return Method(None, None, None, cost, sizes=sizes)


def layers(fit: Fit, works=WORKS, devices=THREE, of=None) -> list[int | None]:
    found = fitted(offered(of or method(), 3, 2), fit, devices, works)
    return [size and size.capacity for size in found]


def test_three_clients_by_hand():
    # memory: 250 holds two layers of 100, 400 would hold four, 99 none
    assert layers(Fit(SERVER, "fp32", memory=True)) == [2, 3, None]
    # seconds of a layer: 20 / 10 down, 10 * 10 / 100 (the laptop 50) compute, 10 / 5 up: 5 and 6
    assert layers(Fit(SERVER, "fp32", seconds=10.0)) == [2, 1, 2]
    assert layers(Fit(SERVER, "bf16", seconds=9.0)) == [2, 2, 2]  # 4.1 a layer
    assert layers(Fit(SERVER, "fp32", bytes=89.0)) == [2, 2, 2]
    assert layers(Fit(SERVER, "fp32", memory=True, seconds=15.0, bytes=1000.0)) == [2, 2, None]
    assert layers(Fit(SERVER, "fp32", seconds=10.0), [Work(10, 2), Work(10, 2), Work(40, 2)]) == [2, 1, 1]
    assert fitted(offered(method(), 3, 2), None, THREE, WORKS) == [Size(3)] * 3  # a ceiling: all of it, for everybody


def test_a_size_must_fit_in_every_round_and_be_offered_in_all():
    grows = method(lambda capacity, t: cost_of(capacity + (t == 1), t))
    assert layers(Fit(SERVER, "fp32", memory=True), of=grows) == [1, 3, None]
    pauses = method(lambda capacity, t: None if (capacity, t) == (3, 1) else cost_of(capacity, t))
    assert layers(Fit(SERVER, "fp32", memory=True), of=pauses) == [2, 2, None]


def test_where_nobody_ever_takes_part_everything_fits():
    nobody = method(lambda capacity, t: None)
    assert layers(Fit(SERVER, "fp32", memory=True, seconds=1e-9, bytes=0.0), of=nobody) == [3, 3, 3]
    at_times = method(lambda capacity, t: None if t == 1 else cost_of(capacity, t))
    assert layers(Fit(SERVER, "fp32", memory=True), of=at_times) == [None, None, None]


def test_what_is_computed_at_once_must_fit_too():
    beside = method(lambda capacity, t: replace(cost_of(capacity, t), workspace_bytes=51))
    assert layers(Fit(SERVER, "fp32", memory=True), of=beside) == [1, 3, None]


def test_a_method_that_says_nothing_has_one_size():
    assert [size for size, _ in offered(method(sizes=None), 3, 2)] == [Size(3)]
    assert layers(Fit(SERVER, "fp32", memory=True), of=method(sizes=None)) == [None, 3, None]


def test_ranks_and_widths_are_priced_too():
    priced = method(lambda capacity, t, rank, width: cost_of(rank or round(4 * width), t), [Size(3, rank=1)])
    (one,) = offered(priced, 3, 1)
    assert one[1][0].memory_bytes == 100
    (two,) = offered(method(priced.cost, [Size(3, width=0.5)]), 3, 1)
    assert two[1][0].memory_bytes == 200


def test_work_on_a_model_of_its_own_and_the_server_take_time_too():
    beside = method(lambda capacity, t: replace(cost_of(capacity, t), personal_epochs=2))
    works = [Work(10, 2, lambda epochs: 5 * epochs)] * 3
    assert layers(Fit(SERVER, "fp32", seconds=10.0), works, of=beside) == [1, 1, 1]


def images(capacity: int, t: int) -> ClientCost:
    """A layer keeps 10 bytes, and 20 of each of 8 images; 4 more of each are computed at once."""
    memory = 10 * capacity + 8 * 20 * capacity
    return replace(cost_of(capacity, t), memory_bytes=memory, workspace_bytes=32, batch=8, passes=((0, 20 * capacity),))


def test_the_largest_size_takes_the_largest_micro_batch_that_fits():
    whole, parts = (Fit(SERVER, "fp32", memory=True, micro_batches=auto) for auto in (False, True))
    assert layers(whole, of=method(images)) == [1, 2, None]
    assert layers(parts, of=method(images)) == [3, 3, 3]  # of one image each: 30 + 60 + 4
    cost = images(3, 0)
    assert [cost.at(B).needed_bytes for B in (8, 4, 1)] == [30 + 8 * 64, 30 + 4 * 64, 30 + 64]
    on = [parts.on(cost, device) for device in THREE]
    assert [one.batch for one in on] == [3, 4, 1]  # 250, 400 and 99 bytes; 8 images in 3, 2 and 8 parts
    assert all(one.flops(8, 8) == cost.flops(8, 8) and one.exchange(8, 8) == cost.exchange(8, 8) for one in on)
    none = cost.within(10)
    assert none.batch == 1 and none.needed_bytes > 10


def test_of_passes_of_several_kinds_the_largest_counts_and_what_cannot_be_split_stays_whole():
    """A part that is copied holds more at first, and less for each image."""
    cost = ClientCost(1, 1, 1, 100 + 8 * 10, batch=8, passes=((0, 10), (30, 5)))
    assert [cost.at(B).memory_bytes for B in (8, 6, 4, 1)] == [180, 160, 150, 135]
    stays = replace(cost, passes=())
    assert stays.at(1) == stays.within(10) == stays


numbers = st.floats(1, 1e3)
devices = st.builds(Device, st.just("d"), st.integers(1, 1000), numbers, numbers, numbers, numbers)
fits = st.builds(
    Fit,
    st.just(SERVER),
    st.sampled_from(["fp32", "bf16"]),
    st.booleans(),
    st.none() | st.floats(0.1, 1e3),
    st.none() | st.floats(1, 300),
)
costs = st.lists(
    st.builds(ClientCost, *[st.integers(1, 100)] * 3, memory_bytes=st.integers(1, 1000)), min_size=1, max_size=4
)


@given(costs, fits, devices, st.integers(1, 1000), st.floats(1, 9))
def test_more_of_anything_never_gives_a_smaller_size(prices, fit, device, memory, factor):
    sizes = [(Size(i + 1), [cost]) for i, cost in enumerate(prices)]
    more = replace(
        device,
        memory=device.memory + memory,
        flops=device.flops * factor,
        flops_bf16=device.flops_bf16 * factor,
        down=device.down * factor,
        up=device.up * factor,
    )
    less, same, most = fitted(sizes, fit, [device, device, more], [Work(7, 3)] * 3)
    assert less == same  # equal devices, equal sizes
    assert (most.capacity if most else 0) >= (less.capacity if less else 0)
    for size, held in ((less, device), (most, more)):
        assert size is None or all(fit.holds(cost, held, Work(7, 3)) for cost in sizes[size.capacity - 1][1])
