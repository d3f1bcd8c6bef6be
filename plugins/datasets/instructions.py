"""The data set `instructions`: prompts and completions of one's own, from tables or the Hugging Face Hub."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from fedbench import hookimpl
from fedbench.data import root_of
from fedbench.data.splitting import chosen_for_test
from fedbench.data.tables import Row, cell, columns_of, rows_of, tables_at
from fedbench.data.texts import Example
from fedbench.disk import hash_of_json
from fedbench.errors import DataMissing, UserError
from fedbench.options import Length, Natural, PathText, Range, Text, judged
from fedbench.types import NEXT_TOKEN, Dataset, Splits, Texts

from .hf import load as of_hub

VERSION = 1  # part of every fingerprint: raise it whenever the same rows give other texts
Column = Annotated[str, Text("a column's name")]
Columns = Column | Annotated[list[Column], Length(1, distinct=True)]
SPLITS = ("train", "test")


class _Found(NamedTuple):
    """One row: where it stands, and what it says. choices: other completions."""

    place: str
    prompt: str
    completion: str
    domain: str
    split: str
    choices: tuple[str, ...]


@judged("instructions")
def make(
    root: Annotated[str, PathText("a table, or a folder of tables")] | None = None,
    hub: Annotated[str, Text("a data set's name on the Hub, or a folder that `datasets` reads")] | None = None,
    prompt: Columns = "prompt",
    completion: Column = "completion",
    between: Annotated[str, Text("what stands between prompt and completion")] = "\n",
    messages: Column | None = None,
    tokenizer: Annotated[str, PathText("a model's name on the Hub, or a folder")] | None = None,
    choices: Column | None = None,
    domain: Column | None = None,
    split: Column | None = None,
    test_fraction: Annotated[float, Range(above=0, below=1)] = 0.2,
    split_seed: Natural = 0,
) -> Dataset:
    """Your own prompts and completions, for next tokens: a JSONL, Parquet, CSV or TSV file, or a folder of them.

    Args:
        root: the file or folder.
        hub: in its place a data set that the library `datasets` loads, its split `train`.
        prompt: the column of prompts, or several, which stand on lines of their own.
        completion: that of completions.
        between: what stands between the two.
        messages: in place of both a column of chats, lists of `role` and `content`, the last of which is the
            completion; the chat template of `tokenizer` writes them.
        choices: a column of lists of other completions, for `choice_accuracy`; rows for training need none.
        domain, split: columns of domains (without one, all are one) and of `train` and `test`. Without a column, files
            that are named train and test say it, or else test_fraction of each domain is drawn by split_seed.

    Raises: UserError with file and row for what cannot be read, a missing column, and an empty completion.
    """
    if (root is None) == (hub is None):
        raise UserError("instructions: give `root`, a file or folder of yours, or `hub`, a name; one of the two")
    if messages is not None and tokenizer is None:
        raise UserError("instructions: `messages` are written by a chat template: say whose with `tokenizer`")
    prompts = [prompt] if isinstance(prompt, str) else list(prompt)
    wanted = [messages] if messages else [*prompts, completion]
    rows = _rows(root, hub, [*wanted, *filter(None, (domain, split))], choices, split)
    template = _chat(str(tokenizer)) if messages else None
    found = []
    for row, named in rows:
        if messages is None or template is None:
            said = between.join(["\n".join(cell(row, one) for one in prompts), ""]), cell(row, completion)
        else:
            said = _of_messages(row, messages, template)
        if not said[1].strip():
            raise UserError(f"{row.place}: the completion is empty: there is nothing in it to learn")
        where = cell(row, domain).strip() if domain else "all"
        part = _split(row, split) if split else named
        others = _choices(row, choices) if choices and part != "train" else ()
        found.append(_Found(row.place, *said, where, part, others))
    return _dataset(found, test_fraction, split_seed)


def _dataset(found: Sequence[_Found], test_fraction: float, split_seed: int) -> Dataset:
    domains = sorted({one.domain for one in found})
    if found and found[0].split:
        test = [one.split == "test" for one in found]
    else:
        examples = [Example((one.prompt, one.completion), 0, domains.index(one.domain)) for one in found]
        test = chosen_for_test(examples, test_fraction, split_seed, "instructions")
    if all(test) or not any(test):
        raise UserError(f"instructions: {len(found)} rows, and {sum(test)} of them are for testing; both are needed")
    halves = [[one for one, flag in zip(found, test, strict=True) if flag is wanted] for wanted in (False, True)]
    fingerprint = hash_of_json([VERSION, domains, [[one[1:] for one in half] for half in halves]])
    splits = Splits(_texts(halves[0], domains), _texts(halves[1], domains))
    return Dataset(tuple(domains), ("text",), fingerprint, lambda: splits, texts=True, task=NEXT_TOKEN)


def _texts(half: Sequence[_Found], domains: Sequence[str]) -> Texts:
    domain = np.array([domains.index(one.domain) for one in half], dtype=np.int64)
    choices = [one.choices for one in half] if any(one.choices for one in half) else None
    completions = [one.completion for one in half]
    return Texts([one.prompt for one in half], np.zeros_like(domain), domain, completion=completions, choices=choices)


def _rows(
    root: str | None, hub: str | None, columns: Sequence[str], choices: str | None, split: str | None
) -> Iterator[tuple[Row, str]]:
    """The rows of all tables, or of a data set of the Hub, each with the split that its file is named after, "" where
    files are not. Raises UserError for a lacking column, and where some files alone are named after splits."""
    if root is not None:
        files = tables_at(root_of("instructions", root))
        stems = {file.stem for file in files}
        named = split is None and stems >= set(SPLITS)
        if named and (others := [file.name for file in files if file.stem not in SPLITS]):
            raise UserError(
                f"{root} has files named train and test, and also {', '.join(others)}: move what is neither, or give "
                "`split`, a column"
            )
        for file in files:
            part = file.stem if named else ""
            own = [*columns, choices] if choices and part != "train" else list(columns)
            _must_have(str(file), columns_of(file), own)
            yield from ((row, part) for row in rows_of(file, own))
        return
    columns = [*columns, choices] if choices else list(columns)
    table = of_hub(str(hub), None, "train")
    _must_have(str(hub), table.column_names, columns)
    for number, cells in enumerate(table.select_columns(list(dict.fromkeys(columns)))):
        yield Row(f"{hub}: row {number}", cells), ""


def _must_have(where: str, there: Sequence[str], columns: Sequence[str]) -> None:
    """Raises UserError where completions are needed, and there are labels."""
    lacking = [one for one in columns if one not in there]
    if lacking and "label" in there:
        raise UserError(
            f"{where}: no column {lacking[0]!r}, but labels: next tokens are learnt from completions; for classes take "
            "the data set text_table"
        )
    if lacking:
        raise UserError(f"{where}: no column {lacking[0]!r}; it has {', '.join(there)}")


def _split(row: Row, column: str) -> str:
    if (own := cell(row, column)) not in SPLITS:
        raise UserError(f"{row.place}: column {column!r} must be train or test, not {own!r}")
    return own


def _choices(row: Row, column: str) -> tuple[str, ...]:
    value = row.cells[column]
    given = json.loads(value) if isinstance(value, str) and value.startswith("[") else value
    if not isinstance(given, list) or not given or not all(isinstance(one, str) and one for one in given):
        raise UserError(f"{row.place}: column {column!r} must be a list of other completions")
    return tuple(given)


def _of_messages(row: Row, column: str, template: Callable[[Any], str]) -> tuple[str, str]:
    """A chat as (all but the last message, what the template adds for that)."""
    given = row.cells[column]
    given = json.loads(given) if isinstance(given, str) else given
    fit = isinstance(given, list) and len(given) > 1
    if not fit or not all(isinstance(one, dict) and {"role", "content"} <= one.keys() for one in given):
        raise UserError(f"{row.place}: column {column!r} must be a list of two messages or more, of role and content")
    return template(given[:-1]), str(given[-1]["content"])


def _chat(name: str) -> Callable[[Any], str]:
    """What writes messages as the prompt of the next one. Raises UserError, DataMissing."""
    if find_spec("transformers") is None:
        raise DataMissing("instructions: chat templates need transformers: pip install 'fedbench-heft[text]'")
    auto: Any = import_module("transformers").AutoTokenizer
    try:
        tokenizer = auto.from_pretrained(str(Path(name)) if Path(name).is_dir() else name, trust_remote_code=False)
    except Exception as error:  # whatever transformers and the Hub's client raise
        raise UserError(f"instructions: the tokenizer {name!r} cannot be read: {error}") from error
    if not tokenizer.chat_template:
        raise UserError(f"instructions: the tokenizer {name!r} has no chat template")

    def write(messages: Any) -> str:
        text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return text

    return write


@hookimpl
def fedbench_register_datasets(register: Callable) -> None:
    """Offer `instructions`."""
    register("instructions", make)
