"""Tables of labelled examples, texts or images: their classes, domains, splits and groups by their columns."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from fedbench.data.names import Names
from fedbench.data.splitting import chosen_for_test, notes_on_groups, split_by_group
from fedbench.data.tables import Row, cell, columns_of, rows_of, tables_at
from fedbench.data.texts import Example, Text
from fedbench.errors import UserError
from fedbench.options import Length, Range
from fedbench.options import Text as Words
from fedbench.words import shortened, suggestion

Column = Annotated[str, Words("a column's name")]
OwnColumn = Column | Literal[False] | None  # None: the one called as the option is, if there is one
ClassNames = Annotated[list[Annotated[str, Words("a class's name")]], Length(2, distinct=True)]
Part = Annotated[float, Range(above=0, below=1)]
SPLITS = ("train", "test")
OPTIONAL = ("domain", "split", "group")


class Labelled(NamedTuple):
    """One row.

    Attributes:
        place: Its file and line, as messages call it.
        file: The table.
        cells: Its texts, or the path of its image.
        label: The name of its class.
        domain: The name of its domain, `all` without a column of domains.
        split: `train`, `test`, or "" where fedbench draws the split.
        group: What it belongs to, or "".
    """

    place: str
    file: Path
    cells: tuple[str, ...]
    label: str
    domain: str
    split: str
    group: str


@dataclass(frozen=True)
class LabelledTable:
    """All rows of a table, or of a folder of tables.

    Attributes:
        kind: The data set's name, for messages.
        root: Where the rows are from.
        rows: All of them, in order.
        classes: The names of classes in order.
        domains: The names of domains, sorted.
        label: The column of classes.
        notes: What was taken for what, and which spellings were joined, a sentence each.
    """

    kind: str
    root: Path
    rows: Sequence[Labelled]
    classes: Sequence[str]
    domains: Sequence[str]
    label: str
    notes: Sequence[str]

    @property
    def groups(self) -> list[str] | None:
        """The group of every row; None without a column of groups."""
        return [row.group for row in self.rows] if any(row.group for row in self.rows) else None

    def examples(self, contents: Sequence[Text]) -> list[Example]:
        """Return the rows with numbers for their classes and domains. contents: a text, or a path, for each row."""
        label, domain = ({name: i for i, name in enumerate(names)} for names in (self.classes, self.domains))
        both = zip(contents, self.rows, strict=True)
        return [Example(content, label[row.label], domain[row.domain]) for content, row in both]

    def tested(self, examples: Sequence[Example], fraction: float, seed: int, noun: str) -> list[bool]:
        """Whether each row is for testing: as its split has it, or drawn.

        Args:
            examples: The rows, see `examples`.
            fraction: The part of each class and domain that a draw takes.
            seed: Of the draw.
            noun: What rows are, such as `text`.

        Raises:
            UserError: Where all rows or none are for testing.
        """
        if any(row.split for row in self.rows):
            test = [row.split == "test" for row in self.rows]
            if all(test) or not any(test):
                only = self.rows[0].split
                raise UserError(f"{self.kind}: {self.root} has {only} rows alone; both train and test are needed")
            return test
        if (groups := self.groups) is None:
            test = chosen_for_test(examples, fraction, seed, self.kind)
            lacks = f"two different {noun}s"
        else:
            test = split_by_group(examples, groups, fraction, seed, self.kind)
            lacks = f"{noun}s of two groups"
        if not any(test):
            raise UserError(
                f"{self.kind}: no class has {lacks}, and so none can be tested; is {self.label!r} the column of "
                "classes?"
            )
        return test

    def notes_on(self, test: Sequence[bool], noun: str) -> list[str]:
        """Return what may be no fault about a split, a sentence each."""
        tested = {row.label for row, flag in zip(self.rows, test, strict=True) if flag}
        lacking = [name for name in self.classes if name not in tested]
        places = {row.place for row, flag in zip(self.rows, test, strict=True) if flag}
        by_place = {row.place: row.group for row in self.rows}
        return [
            *([f"classes without a test {noun}: {shortened(lacking)}"] if lacking else []),
            *(notes_on_groups(by_place, places) if self.groups else []),
        ]


def read_table(
    kind: str,
    root: Path,
    contents: Sequence[str],
    label: str,
    columns: Mapping[str, str | Literal[False] | None],
    classes: Sequence[str] | None = None,
) -> LabelledTable:
    """Read a table, or all tables of a folder.

    Args:
        kind: The data set's name, for messages.
        root: The file or folder.
        contents: The columns of texts, or the one of paths.
        label: The column of classes.
        columns: Those of `domain`, `split` and `group`. None: the column of that name if there is one; False: none.
        classes: The labels in order; None: all that there are, sorted.

    Raises:
        UserError: With file and line, for what cannot be read, a missing column, an empty name, an unknown label or
            split, and a column that is given twice.
    """
    files = tables_at(root)
    taken = _taken(files, [*contents, label], columns)
    _refuse_repeats(kind, contents, label, taken)
    by_name = "split" not in taken and _are_splits(kind, files)
    names = {label: Names(classes or ()), "domain": Names(), "group": Names()}
    rows = []
    for file in files:
        for row in rows_of(file, [*contents, label, *taken.values()]):
            split = _split(row, taken["split"]) if "split" in taken else file.stem.lower() if by_name else ""
            domain = _name(row, taken["domain"], names["domain"]) if "domain" in taken else "all"
            group = _name(row, taken["group"], names["group"]) if "group" in taken else ""
            cells = tuple(cell(row, column) for column in contents)
            rows.append(Labelled(row.place, file, cells, _name(row, label, names[label]), domain, split, group))
    labels = list(classes or sorted({row.label for row in rows}, key=_in_order))
    known = set(labels)
    for one in rows:
        if one.label not in known:
            raise UserError(f"{one.place}: unknown label {one.label!r}{suggestion(one.label, labels, 'classes')}")
    unasked = [option for option in taken if columns.get(option) is None]
    notes = [f"the column {option!r} is taken for {option}s (`{option}: false` leaves it out)" for option in unasked]
    notes += [*names[label].joined("labels"), *names["domain"].joined("domains"), *names["group"].joined("groups")]
    domains = sorted({row.domain for row in rows})
    return LabelledTable(kind, root, rows, labels, domains, label, notes)


def _taken(
    files: Sequence[Path], others: Sequence[str], columns: Mapping[str, str | Literal[False] | None]
) -> dict[str, str]:
    """By option, the column that it takes: the one that is given, or the one called so where it is for nothing else."""
    there = {column for file in files for column in columns_of(file)} - {*others, *columns.values()}
    found = {}
    for option in OPTIONAL:
        given = columns.get(option)
        if given is None and option in there:
            found[option] = option
        elif given:
            found[option] = given
    return found


def _refuse_repeats(kind: str, contents: Sequence[str], label: str, taken: Mapping[str, str]) -> None:
    """Raise where a column is given for two things."""
    known: set[Hashable] = set(contents)
    for column in (label, *taken.values()):
        if column in known:
            raise UserError(f"{kind}: the column {column!r} is given twice, for two things")
        known.add(column)


def _are_splits(kind: str, files: Sequence[Path]) -> bool:
    """Whether files are called train.* and test.*. Raises: UserError where some are and others are not."""
    stems = {file.stem.lower(): file.name for file in files}
    others = [name for stem, name in stems.items() if stem not in SPLITS]
    if others and len(others) < len(stems):
        named = ", ".join(sorted(set(stems.values()) - set(others)))
        raise UserError(
            f"{kind}: {files[0].parent} has {named} and {others[0]}: call all tables train.* or test.*, or none; "
            "leave some out, or name a column of splits"
        )
    return len(stems) > 1 and not others


def _split(row: Row, column: str) -> str:
    if (own := cell(row, column)) not in SPLITS:
        raise UserError(f"{row.place}: column {column!r} must be train or test, not {own!r}")
    return own


def _name(row: Row, column: str, names: Names) -> str:
    """A label, domain or group. Raises: UserError where it is empty."""
    if name := cell(row, column).strip():
        return names(name, row.cells[column])
    raise UserError(f"{row.place}: column {column!r} is empty")


def _in_order(label: str) -> tuple[int, str]:
    """Numbers by their value."""
    return (int(label) if label.isdecimal() else -1, label)
