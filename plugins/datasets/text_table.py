"""The data sets `text_table`, tables of one's own, and `vader_domains`, rated texts of four kinds.

A table is a CSV, TSV, JSONL or Parquet file with the columns text (or two of them), label, domain and split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from fedbench import hookimpl
from fedbench.data import DataPart, DataSource, root_of
from fedbench.data.image_files import UnreadableFile, content
from fedbench.data.names import Names
from fedbench.data.texts import Example, Row, Text, cell, chosen_for_test, is_quoted, rows_of, tables_at, text_dataset
from fedbench.errors import UserError
from fedbench.options import Length, Natural, PathText, Range, judged
from fedbench.options import Text as Words
from fedbench.seeding import seed_of
from fedbench.types import Dataset
from fedbench.words import shortened, suggestion

Column = Annotated[str, Words("a column's name")]
Columns = Column | Annotated[list[Column], Length(2, 2, distinct=True)]
ClassNames = Annotated[list[Annotated[str, Words("a class's name")]], Length(2, distinct=True)]
Part = Annotated[float, Range(above=0, below=1)]
SPLITS = ("train", "test")

# Data set `text_table`


class _Found(NamedTuple):
    """What a row says, in words, and where it stands. quoted: whether a TSV has its text in double quotes."""

    place: str
    text: Text
    label: str
    domain: str
    split: str
    quoted: bool


@judged("text_table")
def make(
    root: Annotated[str, PathText("a table, or a folder of tables")],
    text: Columns = "text",
    label: Column = "label",
    domain: Column | None = None,
    split: Column | None = None,
    classes: ClassNames | None = None,
    test_fraction: Part = 0.2,
    split_seed: Natural = 0,
) -> Dataset:
    """Your own texts: a CSV, TSV, JSONL or Parquet file, or a folder of them.

    Args:
        root: the file or folder.
        text: the column of texts, or two, `[premise, hypothesis]`.
        label, domain, split: the columns of classes, of domains (without one, all are one domain) and of `train` and
            `test`; without one, files called train.* and test.* are the splits, or else test_fraction of each class and
            domain is drawn by split_seed.
        classes: the labels in order; sorted, all that there are, if not given.

    A TSV has no quotes.

    Raises: UserError with file and row for what cannot be read, a missing column, and a label or split that is none.
    """
    texts = [text] if isinstance(text, str) else text
    for column in (label, domain):
        if column in texts or label == domain:
            raise UserError(f"text_table: the column {column!r} is given twice, for two things")
    files = tables_at(root_of("text_table", root))
    by_name = split is None and _are_splits(files)
    names = Names(classes or ()), Names()
    found = [row for file in files for row in _found(file, texts, (label, domain), names, split, by_name)]
    labels = list(classes or sorted({row.label for row in found}, key=_in_order))
    domains = sorted({row.domain for row in found})
    code = {name: number for number, name in enumerate(labels)}
    for row in found:
        if row.label not in code:
            raise UserError(f"{row.place}: unknown label {row.label!r}{suggestion(row.label, labels, 'classes')}")
    examples = [Example(row.text, code[row.label], domains.index(row.domain)) for row in found]
    if any(row.split for row in found):
        test = [row.split == "test" for row in found]
        if all(test) or not any(test):
            raise UserError(f"text_table: {root} has {found[0].split} rows alone; both train and test are needed")
    else:
        test = chosen_for_test(examples, test_fraction, split_seed, "text_table")
        if not any(test):
            raise UserError(
                f"text_table: no class has two different texts, and so none can be tested; is {label!r} the column of "
                "classes?"
            )
    train, tests = _halves(examples, test)
    joined = [*names[0].joined("labels"), *names[1].joined("domains")]
    return text_dataset(domains, labels, train, tests, [*joined, *_notes(found, labels, tests)])


def _are_splits(files: Sequence[Path]) -> bool:
    """Whether files are called train.* and test.*. Raises: UserError where some are and others are not."""
    stems = {file.stem.lower(): file.name for file in files}
    others = [name for stem, name in stems.items() if stem not in SPLITS]
    if others and len(others) < len(stems):
        named = ", ".join(sorted(set(stems.values()) - set(others)))
        raise UserError(
            f"text_table: {files[0].parent} has {named} and {others[0]}: call all tables train.* or test.*, or none; "
            "leave some out, or name a column of splits"
        )
    return len(stems) > 1 and not others


def _notes(found: Sequence[_Found], labels: Sequence[str], tests: Sequence[Example]) -> list[str]:
    """What may be no fault, a sentence each."""
    n, tested = len(found), {one.label for one in tests}
    empty = sum(not any(row.text) for row in found)
    quoted = sum(row.quoted for row in found)
    lacking = [name for c, name in enumerate(labels) if c not in tested]
    return [
        *([f"empty texts: {empty:,} of {n:,}"] if empty else []),
        *([f"texts in double quotes, which a TSV keeps and a CSV does not: {quoted:,} of {n:,}"] if quoted else []),
        *([f"classes without a test text: {shortened(lacking)}"] if lacking else []),
    ]


def _found(
    file: Path,
    texts: Sequence[str],
    of_names: tuple[str, str | None],
    names: tuple[Names, Names],
    split: str | None,
    by_name: bool,
) -> list[_Found]:
    """The rows of a file.

    Args:
        of_names: the columns of labels and of domains.
        names: what these are called.
    """
    label, domain = of_names
    tabs = file.suffix.lower() == ".tsv"
    found = []
    for row in rows_of(file, [*texts, label, *filter(None, (domain, split))]):
        own = cell(row, split) if split else file.stem.lower() if by_name else ""
        if split and own not in SPLITS:
            raise UserError(f"{row.place}: column {split!r} must be train or test, not {own!r}")
        cells = [cell(row, column) for column in texts]
        one: Text = cells[0] if len(cells) == 1 else (cells[0], cells[1])
        quoted = tabs and any(map(is_quoted, cells))
        where = _name(row, domain, names[1]) if domain else "all"
        found.append(_Found(row.place, one, _name(row, label, names[0]), where, own, quoted))
    return found


def _name(row: Row, column: str, names: Names) -> str:
    """A label or domain. Raises: UserError where it is empty."""
    if name := cell(row, column).strip():
        return names(name, row.cells[column])
    raise UserError(f"{row.place}: column {column!r} is empty")


def _in_order(label: str) -> tuple[int, str]:
    """Numbers by their value."""
    return (int(label) if label.isdecimal() else -1, label)


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
    register("text_table", make)
    register("vader_domains", vader, source=VADER)
