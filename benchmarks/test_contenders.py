"""Every contender does the same round: its updates are those of a plain loop, and it leaves nothing behind."""

from __future__ import annotations

import functools
import importlib.util
import multiprocessing
import time

import psutil
import pytest
import torch
import torch.nn.functional as F
from contenders.engines import cohort, sequential
from contenders.flower import flower
from contenders.pfl import pfl
from contenders.reference import reference
from torch import Tensor
from work import ALPHA, CLIP, RANK, SGD, TARGETS, TINY, TINY_BERT, TINY_LLAMA, Update, Work


def missing(*packages: str) -> list[str]:
    """Which of them are not installed. They are looked up, not imported: flwr and pfl act on the process when they
    are."""
    return [package for package in packages if importlib.util.find_spec(package) is None]


def needs(*packages: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(bool(missing(*packages)), reason=f"not installed: {', '.join(missing(*packages))}")


@pytest.mark.slow
@needs("peft")
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_the_reference_without_dropout_does_the_plain_loops_round():
    does_the_plain_loops_round(functools.partial(reference, dropout=0.0))


@pytest.mark.slow
@needs("peft")
def test_the_references_dropout_changes_its_updates():
    with reference(TINY, workers=0) as run:
        assert apart(run(), plain_round(TINY)) > 1e-3


@needs("flwr", "ray")
def test_flower_does_the_plain_loops_round():
    """About 15 s, nearly all of it Ray's start and end."""
    does_the_plain_loops_round(flower)


@needs("flwr", "ray", "peft", "transformers")
def test_flower_with_peft_does_our_round_of_texts():
    with flower(TINY_BERT) as run, sequential(TINY_BERT) as ours:
        assert apart(run(), ours()) < 1e-5
        assert apart(run(), ours()) < 1e-5


@needs("flwr", "ray", "peft", "transformers")
def test_flower_with_peft_does_our_round_of_next_tokens():
    with flower(TINY_LLAMA) as run, sequential(TINY_LLAMA) as ours:
        assert apart(run(), ours()) < 1e-5


@pytest.mark.slow
@needs("transformers")
@pytest.mark.parametrize("work", [TINY_BERT, TINY_LLAMA], ids=lambda work: work.name)
def test_our_engines_do_one_round_of_texts(work):
    with sequential(work) as one, cohort(work) as other:
        first = one()
        assert apart(other(), first) < 1e-5
        assert apart([{name: work.start()[name] for name in update} for update in first], first) > 1e-3


@needs("pfl")
def test_pfl_does_the_plain_loops_round():
    does_the_plain_loops_round(pfl)


def does_the_plain_loops_round(contender) -> None:
    before, started = settings(), children()
    with contender(TINY) as run:
        first, second = run(), run()
    until = time.monotonic() + 20
    while children() != started and time.monotonic() < until:
        time.sleep(0.1)
    assert children() == started
    assert settings() == before

    expected = plain_round(TINY)
    assert apart(first, expected) < 1e-4
    assert apart(second, expected) < 1e-4
    assert apart([{name: TINY.start()[name] for name in update} for update in expected], expected) > 1e-2


def settings() -> tuple[int, str]:
    """Torch's threads, and how processes are started; that is unset until first used, and asking would set it."""
    default = multiprocessing.get_all_start_methods()[0]
    return torch.get_num_threads(), multiprocessing.get_start_method(allow_none=True) or default


def children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def apart(these: list[Update], those: list[Update]) -> float:
    """The largest difference of an element; raises when they are not the same clients' tensors."""
    assert [update.keys() for update in these] == [update.keys() for update in those]
    pairs = [(this[name], that[name]) for this, that in zip(these, those, strict=True) for name in this]
    assert all(a.shape == b.shape and not a.requires_grad for a, b in pairs)
    return max((a - b).abs().max().item() for a, b in pairs)


def plain_round(work: Work) -> list[Update]:
    """The round written out: timm's blocks, LoRA as hooks on them, SGD and clipping by hand."""
    updates = []
    for n, row in enumerate(work.M().tolist()):
        layers = [j for j, yes in enumerate(row) if yes]
        places = [f"blocks.{j}.{target}.lora_{which}" for j in layers for target in TARGETS for which in "AB"]
        values = {name: work.start()[name].requires_grad_() for name in [*places, "head.weight", "head.bias"]}
        velocity = {name: torch.zeros_like(value) for name, value in values.items()}
        vit = with_hooks(work, layers, values)
        for x, y in work.batches(n):
            F.cross_entropy(forward(vit, layers, values, x), y).backward()
            descend(values, velocity)
        updates.append({name: value.detach() for name, value in values.items()})
    return updates


def with_hooks(work: Work, layers: list[int], values: Update) -> torch.nn.Module:
    vit = work.backbone().requires_grad_(False)
    for j in layers:
        for target in TARGETS:
            A, B = (values[f"blocks.{j}.{target}.lora_{which}"] for which in "AB")
            vit.get_submodule(f"blocks.{j}.{target}").register_forward_hook(
                lambda _, args, out, A=A, B=B: out + ALPHA / RANK * (args[0] @ A.T @ B.T)
            )
    return vit


def forward(vit: torch.nn.Module, layers: list[int], values: Update, x: Tensor) -> Tensor:
    x = vit._pos_embed(vit.patch_embed(x))
    for j in layers:
        x = vit.blocks[j](x)
    return vit.forward_head(vit.norm(x), pre_logits=True) @ values["head.weight"].T + values["head.bias"]


@torch.no_grad()
def descend(values: Update, velocity: Update) -> None:
    norm = sum(value.grad.square().sum() for value in values.values()).sqrt()
    for name, value in values.items():
        velocity[name] = SGD["momentum"] * velocity[name] + value.grad * min(1.0, CLIP / norm.item())
        value -= SGD["lr"] * velocity[name]
        value.grad = None
