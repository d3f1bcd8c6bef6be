"""The frozen head of a decoder: losses in chunks, their gradients, and the scores of tokens."""

from __future__ import annotations

import pytest
import torch
from memory import Allocated
from torch.nn import functional as F

from fedbench.models import tokens
from fedbench.models.backbone import HEAD, body_of
from fedbench.models.cost import pricing, whole
from fedbench.models.tokens import UNCOUNTED, TokenStates, example_rows, over_tokens, token_scores, without_end
from fedbench.types import Exit
from fedbench_plugins.adapters.lora import lora
from fedbench_plugins.backbones import micro_llama
from fedbench_plugins.objectives import cross_entropy, mutual_kl

B, T, D, V = 3, 5, 4, 7
Y = torch.tensor([[1, 2, -1, -1, -1], [-1, 3, 6, 0, 2], [-1, -1, 5, -1, -1]])


def states(exits=1, seed=0):
    draw = torch.Generator().manual_seed(seed)
    made = [torch.randn(B, T, D, generator=draw, dtype=torch.float64, requires_grad=True) for _ in range(exits)]
    return made, torch.randn(V, D, generator=draw, dtype=torch.float64)


def kl(exits, y, t):
    return mutual_kl(exits, y, t, ramp_rounds=2)


@pytest.mark.parametrize("most", [1, 3 * V, 10**6])
@pytest.mark.parametrize(("objective", "exits"), [(cross_entropy, 1), (cross_entropy, 2), (kl, 3)])
def test_a_loss_in_chunks_and_its_gradient_are_those_of_all_counted_tokens_at_once(monkeypatch, most, objective, exits):
    monkeypatch.setattr(tokens, "LOGITS_AT_ONCE", most)
    made, weight = states(exits)
    loss = over_tokens(objective)([TokenStates(one, weight) for one in made], Y, 1)
    found = torch.autograd.grad(2 * loss, made)
    at = Y != UNCOUNTED
    expected = objective([one[at] @ weight.T for one in made], Y[at], 1)
    assert abs((loss - expected).item()) < 1e-12
    for one, other in zip(found, torch.autograd.grad(2 * expected, made), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_many_exits_have_fewer_tokens_at_once_so_that_memory_stays_bounded():
    most = tokens.LOGITS_AT_ONCE // 49_152
    assert [tokens.tokens_at_once(49_152, exits) for exits in (1, 4, 5, 10)] == [most, most, most // 2, most // 3]
    assert tokens.tokens_at_once(2**30) == 1


def test_an_exit_that_the_objective_does_not_use_has_no_gradient():
    made, weight = states(2)
    over_tokens(lambda exits, y, t: cross_entropy(exits[:1], y, t))(
        [TokenStates(one, weight) for one in made], Y, 0
    ).backward()
    assert made[0].grad is not None and made[1].grad is None


def test_micro_batches_of_unequal_lengths_give_the_gradient_of_the_whole_batch():
    """The fault of gradient accumulation found in 2024: a mean over the means of parts weighs tokens unequally."""
    (whole,), weight = states()
    loss = over_tokens(cross_entropy)
    expected = torch.autograd.grad(loss([TokenStates(whole, weight)], Y, 0), whole)[0]
    for rows in (slice(0, 1), slice(1, 3)):
        share = tokens.counted(Y[rows]) / tokens.counted(Y)
        (share * loss([TokenStates(whole[rows], weight)], Y[rows], 0)).backward()
    torch.testing.assert_close(whole.grad, expected, rtol=0, atol=1e-12)
    assert tokens.counted(Y) == 7 and tokens.counted(torch.zeros(5)) == 5


def test_logits_of_a_classifier_go_to_the_objective_itself():
    logits, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    assert over_tokens(cross_entropy)([logits], y, 0) == cross_entropy([logits], y, 0)


def test_scores_of_tokens_by_hand_and_the_rows_that_metrics_add_up():
    (made,), weight = states()
    scores = token_scores(TokenStates(made, weight), Y)
    logits = (made @ weight.T).detach()
    nll = F.cross_entropy(logits.transpose(1, 2), Y, ignore_index=UNCOUNTED, reduction="none")
    torch.testing.assert_close(scores.nll, nll)
    assert torch.equal(scores.hits, logits.argmax(2) == Y)
    rows = example_rows(scores, Y, torch.tensor([True, False, True]))
    assert rows[:, tokens.TOKENS].tolist() == [2, 4, 1] and rows[:, tokens.CHOSEN].tolist() == [1, 0, 1]
    torch.testing.assert_close(rows[:, tokens.NLL], nll.sum(1))
    assert not rows[:, tokens.NUMBER].any()
    assert example_rows(scores, Y, number=torch.tensor([False, True, True]))[:, tokens.NUMBER].tolist() == [0, 1, 1]
    assert rows[:, tokens.EXACT].tolist() == [float(n == m) for n, m in zip(scores.hits.sum(1), [2, 4, 1], strict=True)]


def test_the_end_of_a_text_is_its_last_counted_token():
    assert without_end(Y).tolist() == [
        [1, -1, -1, -1, -1],
        [-1, 3, 6, 0, -1],
        [-1, -1, -1, -1, -1],
    ]


def test_the_mean_of_several_exits_has_the_mean_of_their_logits():
    made, weight = states(3)
    answers = [TokenStates(one, weight) for one in made]
    mean = tokens.mean_of_answers(answers).logits()
    torch.testing.assert_close(mean, torch.stack([one.logits() for one in answers]).mean(0))


def test_charged_memory_is_the_peak_of_a_client_built_by_hand():
    depth, B, T = 4, 16, 64
    body = body_of(micro_llama.make().model).eval()
    body.predict_tokens()
    lora(rank=8, alpha=16)(body)
    body.add_classifier(HEAD, 1)
    body.draw(torch.Generator().manual_seed(0))
    loss_of, exits = over_tokens(cross_entropy), [Exit(depth, HEAD)]
    price = pricing(body, loss_of, {"batch_size": B, "optimizer": {"name": "adamw", "lr": 1e-3}}, T)
    charged = price(whole(depth, exits))
    for block in body.blocks[depth:]:
        block.requires_grad_(False)
    trained = [p for p in body.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    x = torch.randint(3, 435, (B, T), generator=torch.Generator().manual_seed(0))
    with Allocated() as made:
        for _ in range(2):
            optimizer.zero_grad()
            loss_of(body(x, range(depth), exits), x.roll(-1, 1), 0).backward()
            optimizer.step()
    measured = body.frozen_bytes(depth) + sum(p.nbytes for p in trained) + made.peak
    assert 0.90 <= charged.memory_bytes / measured <= 1.05
    assert sum(one.down for one in charged.sent if one.what == "embedding") == body.frozen_bytes(0)
