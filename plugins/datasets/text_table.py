"""The data sets `text_table`, tables of one's own, and `vader_domains`, rated texts of four kinds.

A table is a CSV, TSV, JSONL or Parquet file with the columns text (or two of them), label, domain and split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from fedbench import hookimpl
from fedbench.data import DataPart, DataSource, root_of
from fedbench.data.image_files import UnreadableFile, content
from fedbench.data.labelled import ClassNames, Column, LabelledTable, OwnColumn, Part, read_table
from fedbench.data.tables import is_quoted
from fedbench.data.texts import Example, text_dataset
from fedbench.errors import UserError
from fedbench.options import Length, Natural, PathText, judged
from fedbench.seeding import seed_of
from fedbench.types import Dataset

Columns = Column | Annotated[list[Column], Length(2, 2, distinct=True)]

# Data set `text_table`


@judged("text_table")
def make(
    root: Annotated[str, PathText("a table, or a folder of tables")],
    text: Columns = "text",
    label: Column = "label",
    domain: OwnColumn = None,
    split: OwnColumn = None,
    classes: ClassNames | None = None,
    test_fraction: Part = 0.2,
    split_seed: Natural = 0,
    group: OwnColumn = None,
) -> Dataset:
    """Your own texts: a CSV, TSV, JSONL or Parquet file, or a folder of them.

    Args:
        root: the file or folder.
        text: the column of texts, or two, `[premise, hypothesis]`.
        label: the column of classes.
        domain: that of domains, by default the one called `domain`. Without one, or with false, all are one domain.
        split: likewise, of `train` and `test`. Without one, files called train.* and test.* are the splits, or else
            test_fraction of each class and domain is drawn by split_seed.
        classes: the labels in order; sorted, all that there are, if not given.
        group: likewise, of what belongs together, as texts of one author do, and is drawn to the same side.

    A TSV has no quotes.

    Raises: UserError with file and row for what cannot be read, a missing column, and a label or split that is none.
    """
    texts = [text] if isinstance(text, str) else text
    columns = {"domain": domain, "split": split, "group": group}
    table = read_table("text_table", root_of("text_table", root), texts, label, columns, classes)
    pairs = len(texts) == 2
    examples = table.examples([(row.cells[0], row.cells[1]) if pairs else row.cells[0] for row in table.rows])
    test = table.tested(examples, test_fraction, split_seed, "text")
    train, tests = _halves(examples, test)
    groups = table.groups and [group for group, flag in zip(table.groups, test, strict=True) if not flag]
    notes = [*table.notes, *_notes(table), *table.notes_on(test, "text")]
    return text_dataset(table.domains, table.classes, train, tests, notes, groups)


def _notes(table: LabelledTable) -> list[str]:
    """What may be no fault, a sentence each."""
    n = len(table.rows)
    empty = sum(not any(row.cells) for row in table.rows)
    quoted = sum(row.file.suffix.lower() == ".tsv" and any(map(is_quoted, row.cells)) for row in table.rows)
    return [
        *([f"empty texts: {empty:,} of {n:,}"] if empty else []),
        *([f"texts in double quotes, which a TSV keeps and a CSV does not: {quoted:,} of {n:,}"] if quoted else []),
    ]


def _halves(examples: Sequence[Example], test: Sequence[bool]) -> tuple[list[Example], list[Example]]:
    train, tests = (
        [one for one, flag in zip(examples, test, strict=True) if flag is wanted] for wanted in (False, True)
    )
    return train, tests


# Data set `vader_domains`: sentences with mean human ratings from -4 to 4 (Hutto and Gilbert, ICWSM 2014)


ARCHIVE, MD5 = "hutto_ICWSM_2014.tar.gz", "6a09f8796e24b65b8614d2ccd878aa4a"
KINDS = {"tweets": "tweets", "film": "movieReviewSnippets", "products": "amazonReviewSnippets"}
KINDS |= {"editorials": "nytEditorialSnippets"}
SENTIMENTS = ("negative", "neutral", "positive")
CUT = 0.5
VADER = DataSource(
    page="https://github.com/cjhutto/vaderSentiment",
    parts=tuple(
        DataPart((f"hutto_ICWSM_2014/{file}_GroundTruth.txt", f"{file}_GroundTruth.txt"), ARCHIVE, MD5)
        for file in KINDS.values()
    ),
    licence="MIT for the package; the texts are their authors'",
    sdist=("vaderSentiment==3.3.2", "vaderSentiment-3.3.2.tar.gz"),
)


@judged("vader_domains")
def vader(
    root: Annotated[str, PathText("a folder")] | None = None, test_fraction: Part = 0.2, split_seed: Natural = 0
) -> Dataset:
    """23,703 tweets, sentences on films and products, and of editorials, by the mean of human ratings: three classes.

    negative is below -0.5, positive above 0.5.

    Args:
        root: the folder with hutto_ICWSM_2014/, or that folder itself; `vader_domains` in the folder of data sets if
            not given.
        test_fraction, split_seed: part of the reviews, articles and tweets of each domain that is for testing, with all
            their sentences, and the seed that picks them.
    """
    folder = root_of("vader_domains", root)
    VADER.require("vader_domains", folder)
    halves: tuple[list[Example], list[Example]] = ([], [])
    for domain, (kind, part) in enumerate(zip(KINDS, VADER.parts, strict=True)):
        documents = _documents(part.at(folder), domain)
        ranked = sorted(documents, key=lambda document: seed_of(split_seed, use=f"vader_domains {kind} {document}"))
        wanted = test_fraction * sum(map(len, documents.values()))
        tests: list[Example] = []
        for document in ranked:
            (tests if len(tests) < wanted else halves[0]).extend(documents[document])
        halves[1].extend(tests)
    return text_dataset(list(KINDS), SENTIMENTS, *halves)


def _documents(file: Path, domain: int) -> dict[str, list[Example]]:
    """The sentences of each tweet, review or article: lines of its number (`12`, or `12_3`), a rating and a text."""
    try:
        lines = content(file.parent, file.name).decode("utf-8", "surrogateescape").split("\n")
    except UnreadableFile as error:
        raise UserError(f"cannot read {file}: {error.why}") from error
    found: dict[str, list[Example]] = defaultdict(list)
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            name, mean, text = line.split("\t", 2)
            rating = float(mean)
            text.encode()  # bytes that are not UTF-8 are still in it
        except ValueError as error:
            raise UserError(
                f"{file}:{number}: expected number, rating and text in UTF-8, with tabs: {error}"
            ) from error
        found[name.partition("_")[0]].append(Example(text.strip(), 1 + (rating > CUT) - (rating < -CUT), domain))
    return found


@hookimpl
def fedbench_register_datasets(register: Callable) -> None:
    register("text_table", make, later=("group",))
    register("vader_domains", vader, source=VADER)
