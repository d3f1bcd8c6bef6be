"""Centralised training of a BERT beside `transformers.Trainer` with peft: equal losses and adapters in every step."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from ragged import ragged
from tiny_texts import SMALL, TextBatches
from torch import nn

from fedbench.engine import sequential
from fedbench.seeding import generator
from fedbench.testing.setups import CLASSES, setup_of
from fedbench_plugins.backbones.text_models import ATTENTION, TextModel, attention

pytestmark = pytest.mark.usefixtures("counted_once", "never_counted")


SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}
CLIP, STEPS, PLACES = 0.5, [3, 2, 3], ["query", "value"]
LORA = {"name": "lora", "rank": 2, "alpha": 4, "targets": PLACES}


class Theirs(nn.Module):
    """AutoModel with peft's adapters, and a classifier of the mean over tokens."""

    def __init__(self, body, start):
        import peft

        super().__init__()
        config = peft.LoraConfig(r=LORA["rank"], lora_alpha=LORA["alpha"], target_modules=PLACES)
        self.body = peft.get_peft_model(body, config)
        self.head = nn.Linear(SMALL["hidden_size"], CLASSES, dtype=torch.float64)
        with torch.no_grad():
            for name, value in self.trained().items():
                value.copy_(start[name])

    def trained(self):
        """What is trained by the names of fedbench's state: `r/0/attention.self.query.lora_A`, `shared/head.bias`."""
        named = {name: value for name, value in self.named_parameters() if value.requires_grad}
        short = {name.removeprefix("body.base_model.model.encoder.layer."): value for name, value in named.items()}
        short = {name.replace(".default.weight", ""): value for name, value in short.items()}
        return {f"shared/{n}" if n.startswith("head") else "r/" + n.replace(".", "/", 1): v for n, v in short.items()}

    def forward(self, input_ids, attention_mask, token_type_ids, labels):
        given = {"input_ids": input_ids, "token_type_ids": token_type_ids}
        hidden = self.body(**given, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1)
        logits = self.head((hidden * mask).sum(1) / mask.sum(1))
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Pairs(TextBatches):
    """Batches of pairs of texts: what stands behind the second token is of the second one."""

    def __call__(self, n):
        for x, y in super().__call__(n):
            second = (torch.arange(x.shape[1]) > 1) & (x >= 0)
            yield x + 20 * second, y

    def only(self, rows):
        return Pairs([self.ids[n] for n in rows], self.lengths, self.sizes)


def test_pooled_is_a_trainer_on_the_same_batches(registry, tmp_path):
    transformers, _, _ = map(pytest.importorskip, ("transformers", "peft", "accelerate"))  # the last is Trainer's need
    config = transformers.BertConfig(**SMALL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    torch.manual_seed(0)
    body = transformers.AutoModel.from_config(config)
    for parameter in body.parameters():
        parameter.data.normal_(std=0.3)
    ours = copy.deepcopy(body)
    transformers.AttentionInterface.register(ATTENTION, attention)
    ours.config._attn_implementation = ATTENTION
    batches = Pairs([0, 1, 2], lengths=[5, 8, 3], sizes=[3, 2])
    start, end, losses = pooled(registry, TextModel(ours, "mean"), batches)

    theirs = Theirs(body.double(), start)
    in_order = [batch for n, steps in enumerate(STEPS) for batch in list(batches(n))[:steps]]
    torch.testing.assert_close(trainers_losses(theirs, in_order, tmp_path), losses, rtol=1e-10, atol=1e-10)
    assert (torch.stack(losses).diff().abs() > 1e-3).all()
    assert theirs.trained().keys() == end.keys() and len(end) == 4 * 2 * 2 + 2
    for name, value in theirs.trained().items():
        torch.testing.assert_close(value.detach(), end[name], rtol=1e-10, atol=1e-10)
        assert not torch.equal(value, start[name])


def pooled(registry, model, batches):
    """The state before and after a round, place by place, and the loss of every step."""
    losses = []

    def engine(model, start, plan, cohort, job):
        def objective(exits, y, t):
            losses.append(job.objective(exits, y, t))
            return losses[-1]

        return sequential.train(model, start, plan, cohort, replace(job, objective=objective))

    cohort = replace(ragged([4, 3, 1], steps=STEPS, sizes=[3, 2]), batches=batches)
    setup = setup_of(registry, model, [4, 3, 1], LORA, engine=engine, optimizer=SGD, clip=CLIP)
    method = registry.make("method", {"name": "pooled"}, setup=setup)
    start = method.init(generator(0))
    before = flat(start)
    end, _ = method.round(start, 0, cohort, generator(0, 0))
    return before, flat(end), [loss.detach() for loss in losses]


def flat(state):
    inside = {f"r/{j}/{name}": value for j, own in enumerate(state["r"]) for name, value in own.items()}
    values = inside | {f"shared/{name}": value for name, value in state["shared"].items()}
    return {name: value.detach().clone() for name, value in values.items()}


def trainers_losses(model, batches, folder):
    """The loss of every step of `transformers.Trainer`, which takes these batches in their order."""
    import transformers

    losses = []

    class InOrder(transformers.Trainer):
        def get_train_dataloader(self):
            return [
                {
                    "input_ids": (x % 20).masked_fill(x < 0, 0),
                    "attention_mask": (x >= 0).long(),
                    "token_type_ids": (x // 20).clamp(min=0),
                    "labels": y,
                }
                for x, y in batches
            ]

        def compute_loss(self, *given, **options):
            loss = super().compute_loss(*given, **options)
            losses.append(loss.detach())
            return loss

    options = {name: value for name, value in SGD.items() if name != "name"}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], **options)
    constant = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=len(batches), max_grad_norm=CLIP, use_cpu=True, report_to="none", disable_tqdm=True,
        save_strategy="no", logging_strategy="no",
    )  # fmt: skip
    InOrder(model, arguments, optimizers=(optimizer, constant)).train()
    return losses
