"""The pretended GPU itself: its rules are those of a real one, as torch has them."""

from __future__ import annotations

import threading

import pretended
import pytest
import torch
from torch import nn

MIXED = "Expected all tensors to be on the same device"


@pytest.fixture
def gpu():
    with pretended.gpu(total=2**20) as made:
        yield made


def there(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device="cuda")


def test_tensors_are_where_they_were_made_or_sent(gpu):
    x, y = there(3), torch.ones(3)
    assert (x.device, x.is_cuda, x.is_cpu) == (torch.device("cuda", 0), True, False) and y.device.type == "cpu"
    on_gpu = [
        x + 1,
        x[0],
        x.new_zeros(2),
        torch.zeros_like(x),
        x.double(),
        y.cuda(),
        y.to(x),
        y.to("cuda", torch.int64),
    ]
    assert all(one.is_cuda for one in on_gpu) and on_gpu[-1].dtype == torch.int64
    on_cpu = [x.cpu(), x.to("cpu"), x.to(y), torch.zeros_like(x, device="cpu"), torch.tensor([x[0]])]
    assert not any(one.is_cuda for one in on_cpu)
    layer = nn.Linear(3, 2).to("cuda")
    layer(x).sum().backward()
    assert layer.weight.grad.is_cuda and layer.weight.grad.tolist() == [[1, 1, 1]] * 2


def test_outside_there_is_none():
    with pretended.gpu():
        kept = there(2)
    assert kept.device.type == "cpu" and not torch.cuda.is_available()


def test_another_thread_does_not_see_it(gpu):
    batch, alone = there(2), []
    thread = threading.Thread(target=lambda: alone.append(batch.device.type))
    thread.start(), thread.join()
    assert alone == ["cpu"]  # the modes of torch belong to threads


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, y: x + y,
        lambda x, y: torch.mm(x.view(1, 3), y.view(3, 1)),
        lambda x, y: torch.cat([x, y]),
        lambda x, y: torch.stack([x[0], y[0]]),
        lambda x, y: torch.where(y > 0, x, 0.0),
        lambda x, y: x[0] + y,
        lambda x, y: torch._foreach_add([x], [y]),
        lambda x, y: nn.functional.linear(x, y.view(1, 3)),
    ],
)
def test_two_sides_do_not_mix(gpu, wrong):
    with pytest.raises(RuntimeError, match=MIXED):
        wrong(there(3), torch.ones(3))


def test_a_number_of_the_cpu_may_stand_beside_elements(gpu):
    assert (there(3) * torch.tensor(2.0)).is_cuda and (there(1).sum() + torch.zeros(())).is_cuda


def test_what_indexes_lies_on_either_side_and_the_indexed_on_its_own(gpu):
    i = torch.tensor([1, 0])
    assert there(3)[i].is_cuda and gpu.waits.total() == 1
    with pytest.raises(RuntimeError, match="indices should be"):
        torch.ones(3)[i.cuda()]


@pytest.mark.parametrize(
    ("waits", "does"),
    [
        (1, lambda x: x.sum().item()),
        (1, lambda x: bool(x[0] > 0)),
        (1, lambda x: x.tolist()),
        (1, lambda x: x.cpu()),
        (1, lambda x: torch.ones(3).to("cuda")),
        (1, lambda x: torch.tensor([1.0], device="cuda")),
        (1, lambda x: torch.tensor([x[0], x[1]])),
        (1, lambda x: x.nonzero()),
        (1, lambda x: x[x > 0]),
        (1, lambda x: torch.equal(x, x)),
        (1, lambda x: torch.cuda.synchronize()),
        (1, lambda x: torch.ones(3).copy_(x)),
        (0, lambda x: torch.ones(3).pin_memory().to("cuda", non_blocking=True)),
        (0, lambda x: (x * 2).sum().sqrt()),
    ],
)
def test_waits_are_counted_and_told_as_torch_tells_them(gpu, waits, does):
    x = there(3)
    does(x)
    assert gpu.waits.total() == waits
    assert all(place.startswith("test_pretended.py:") for _, place in gpu.waits)
    torch.cuda.set_sync_debug_mode("error")
    if waits:
        with pytest.raises(RuntimeError, match="synchronizing"):
            does(x)
    else:
        does(x)


def test_one_seed_draws_other_numbers_there_and_generators_keep_to_their_side(gpu):
    here, on_gpu = (torch.Generator(device).manual_seed(0) for device in ("cpu", "cuda"))
    assert on_gpu.device.type == "cuda" and isinstance(on_gpu, torch.Generator)
    a, b = torch.rand(4, generator=here), torch.rand(4, generator=on_gpu, device="cuda")
    assert not torch.equal(a, b.cpu())
    again = torch.rand(4, generator=torch.Generator("cuda").manual_seed(0), device="cuda")
    assert torch.equal(b, again)
    for wrong in (
        lambda: torch.rand(4, generator=here, device="cuda"),
        lambda: there(2).uniform_(generator=here),
        lambda: torch.rand(4, generator=on_gpu),
        lambda: nn.init.normal_(there(2), generator=here),
    ):
        with pytest.raises(RuntimeError, match="device type for generator"):
            wrong()


def test_memory_is_what_is_referred_to_and_its_end_is_the_share(gpu):
    x = there(2**16)  # of 4 bytes
    assert torch.cuda.memory_allocated() == 2**18 and torch.cuda.mem_get_info() == (2**20 - 2**18, 2**20)
    y = x + 1
    assert torch.cuda.memory_allocated() == 2**19
    del y
    assert torch.cuda.memory_allocated() == 2**18
    with pytest.raises(torch.cuda.OutOfMemoryError):
        there(2**18)
    torch.cuda.set_per_process_memory_fraction(0.25)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        x + 1
    with pytest.raises(ValueError, match="device with a specified index"):
        torch.cuda.get_per_process_memory_fraction("cuda")
    gpu.memory.fraction, gpu.memory.others = 1.0, 2**19
    assert torch.cuda.mem_get_info()[0] == 2**18
    with pytest.raises(torch.cuda.OutOfMemoryError):
        there(2**17)
