"""lm-evaluation-harness scores an export of next tokens as fedbench scored the cell."""

from __future__ import annotations

import json

import pyarrow.parquet
import pytest
from exported import computed, loaded
from test_decoder_exports import SUITE, causal_model
from test_text_exports import tiny_model

from fedbench.export import export
from fedbench.results.scores import average, by_round
from fedbench.simulation.saved_model import reopen

lm_eval = pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness, which no extra brings")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow


def test_its_choices_are_right_as_often_as_the_cells(registry, tmp_path):
    for name, kind in (("llama", "LlamaConfig"), ("gpt2", "GPT2Config")):
        tiny_model(tmp_path / name, "llama")
        causal_model(tmp_path / name, kind)
    (tmp_path / "suite.yaml").write_text(
        SUITE.format(folder=tmp_path).replace("test_per_class: 1", "test_per_class: 9")
    )
    cell = computed(tmp_path / "suite.yaml", registry, [("llama", "fedra")])["llama", "fedra"]
    model = loaded(export(cell, "peft", tmp_path / "out", registry).loading)
    test = reopen(cell, registry)[0].dataset.load().test
    rows = [
        {"prompt": prompt, "choices": [one.lstrip() for one in (completion, *others)]}
        for prompt, completion, others in zip(test.text, test.completion, test.choices, strict=True)
    ]
    (between,) = {one[: len(one) - len(one.lstrip())] for one in test.completion}
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = {
        "task": "phrases",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "test.jsonl")}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{prompt}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": 0,
        "target_delimiter": between,
        "metric_list": [{"metric": "acc_norm", "aggregation": "mean", "higher_is_better": True}],
    }
    from lm_eval.models.huggingface import HFLM

    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "llama", eos_token="[SEP]")
    scorer = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=8, device="cpu", add_bos_token=False)
    found = lm_eval.simple_evaluate(scorer, tasks=[task], bootstrap_iters=0)["results"]["phrases"]
    rounds = by_round(pyarrow.parquet.read_table(cell / "eval.parquet"), "choice_accuracy", "test")
    assert 0.1 < found["acc_norm,none"] < 0.9
    assert found["acc_norm,none"] == pytest.approx(average(rounds[max(rounds)]), abs=1e-9)
