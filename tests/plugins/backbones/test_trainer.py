"""Fine-tuning as `transformers.Trainer` does it with peft: the same losses on the same batches."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_decoders import blocks_of, causal

from fedbench.engine import sequential
from fedbench.families.layerwise import head_at_end
from fedbench.models.backbone import HEAD, load
from fedbench.models.layered import PADDING
from fedbench.models.tokens import UNCOUNTED, over_tokens
from fedbench.types import Cohort, Job, Plan
from fedbench_plugins.adapters.lora import lora
from fedbench_plugins.objectives import cross_entropy

pytest.importorskip("transformers")
STEPS, B, LR = 8, 3, 0.01


def batches():
    """Prompts and completions of unequal lengths: x, y."""
    draw = torch.Generator().manual_seed(3)
    for step in range(STEPS):
        T = 5 + step % 3
        x, y = (torch.randint(4, 20, (B, T), generator=draw) for _ in range(2))
        y[:, :-1] = x[:, 1:]
        y[:, :2] = UNCOUNTED
        x[0, T - 1], y[0, T - 2 :] = PADDING, UNCOUNTED
        yield x, y


def ours(model):
    """The losses of a client that takes these steps, and its adapters at first and at last."""
    blocks = blocks_of(model).float()
    lora(rank=2, alpha=4)(blocks)
    blocks.add_classifier(HEAD, 20)
    blocks.draw(torch.Generator().manual_seed(0))
    first = {name: p.detach().clone() for name, p in blocks.model.named_parameters() if p.requires_grad}
    start = {"r": [{n: p.detach().clone() for n, p in blocks.r(j).items()} for j in range(4)], "shared": {}}
    optimizer = {"name": "adamw", "lr": LR, "weight_decay": 0.0}
    plan, losses = Plan(torch.ones(1, 4, dtype=torch.bool), [head_at_end(4)]), []
    loss_of = over_tokens(cross_entropy)

    def noted(exits, y, t):
        losses.append(loss := loss_of(exits, y, t))
        return loss

    job = Job(0, 0, optimizer, 1.0, noted)
    one = torch.ones(1, dtype=torch.int64)
    cohort = Cohort([0], 4 * one, one, STEPS * one, lambda n: batches())
    up = sequential.train(blocks, start, plan, cohort, replace(job))
    for j in range(4):
        load(blocks.r(j), {name: rows[0] for name, rows in up.r[j].items()})
    last = {name: p.detach().clone() for name, p in blocks.model.named_parameters() if p.requires_grad}
    return [loss.item() for loss in losses], first, last


@pytest.mark.slow
def test_losses_and_adapters_equal_those_of_the_trainer_with_peft(tmp_path):
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    losses, first, last = ours(causal("llama").float())
    plain = causal("llama").float()
    plain.config._attn_implementation = "eager"
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=["o_proj", "down_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(plain, config)
    theirs = {
        name.removeprefix("base_model.model.model.").replace("layers.", "blocks.").replace(".default.weight", ""): p
        for name, p in model.named_parameters()
        if p.requires_grad
    }
    assert theirs.keys() == first.keys()
    load(theirs, first)
    rows = []
    for x, y in batches():
        labels = torch.full_like(x, -100)
        labels[:, 1:] = y[:, :-1].masked_fill(y[:, :-1] == UNCOUNTED, -100)
        ends = y[:, -1:].masked_fill(y[:, -1:] == UNCOUNTED, -100)  # the last token is predicted of all others
        ids = torch.cat([x, y[:, -1:].clamp(min=0)], 1)
        mask = torch.cat([x >= 0, y[:, -1:] >= 0], 1).long()
        rows.append({"input_ids": ids.clamp(min=0), "attention_mask": mask, "labels": torch.cat([labels, ends], 1)})
    found = []

    class Noted(transformers.Trainer):
        def training_step(self, *given, **more):
            found.append(super().training_step(*given, **more).item())
            return torch.tensor(found[-1])

        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(rows)

    arguments = transformers.TrainingArguments(
        str(tmp_path), per_device_train_batch_size=1, max_steps=STEPS, learning_rate=LR, lr_scheduler_type="constant",
        weight_decay=0.0, max_grad_norm=1.0, use_cpu=True, report_to=[], save_strategy="no", optim="adamw_torch",
        disable_tqdm=True,
    )  # fmt: skip
    trainer = Noted(model, arguments, train_dataset=rows, data_collator=lambda batch: batch[0])
    trainer.train()
    torch.testing.assert_close(torch.tensor(found), torch.tensor(losses), rtol=1e-5, atol=1e-5)
    for name, p in theirs.items():
        torch.testing.assert_close(p.detach(), last[name], rtol=1e-4, atol=1e-4)
