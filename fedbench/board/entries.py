"""Boards and entries: what their YAML files may say, how they are read, and where everything of an entry lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from fedbench.disk import hash_of_file, hash_of_json, write_atomically
from fedbench.errors import UserError
from fedbench.options import Count, NotNegative
from fedbench.results import Result, examine
from fedbench.results.files import digest_of_cell
from fedbench.suite.keys import Seeds
from fedbench.suite.validate import shaped
from fedbench.suite.values import Name
from fedbench.suite.yaml import Mark, Node, Problems, read
from fedbench.words import meant

SUBMITTED, RERUN, SIGNED, CHALLENGED, WITHDRAWN = "submitted", "rerun", "signed", "challenged", "withdrawn"
RANKED = (RERUN, SIGNED, CHALLENGED)  # somebody else has run these again, on hidden seeds
BUILT_IN = "built-in"
BOARDS, ENTRIES, RERUNS, ENTRY = "boards", "entries", "reruns", "entry.yaml"  # inside the folder of the board
CODE = "plugin"  # the folder of an entry's code, apart from entry.yaml, which has its hash
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$", title="a SHA-256 in hex")]
Day = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$", title="a day such as 2026-11-29, in quotes")]


class Keys(BaseModel):
    """A mapping of a file, with no keys but its own."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


class Hidden(Keys):
    """The seeds that rank: how many, and the hash of the salt that they follow from; `salt` once it is published."""

    seeds: Count
    salt_sha256: Digest
    salt: str = ""


class Version(Keys):
    """A version of a board: its day, what changed, and of an older one the salt of its hidden seeds with its hash."""

    version: Count
    date: Day
    changes: str
    salt: str = ""
    salt_sha256: str = ""


class Board(Keys):
    """A version of a board, as `boards/*.yaml` say.

    Attributes:
        sha256: of the suite.
        trials: how many candidates every method has.
        seeds: those of submitted results.
        tolerance: points that a cell may differ by where it is run again.
        control: what the fall on new draws of the data is compared with.
        references: methods that every re-run computes as well, to compare with.
        sets: settings of the command line.
        held_out: the option of the data set that draws other examples, if there is one.
    """

    board: Name
    version: Count
    title: str
    suite: str
    sha256: Digest
    scenario: str
    backbone: str
    metric: str
    trials: Count
    seeds: Seeds
    tolerance: NotNegative
    control: Name
    references: list[Name]
    hidden: Hidden
    history: list[Version]
    sets: list[str] = []
    held_out: str = ""
    _node: Node = PrivateAttr()

    def mark(self, *path: str) -> Mark:
        """Where a part of its file stands."""
        return self._node.at(*path).mark


class File(Keys):
    """A plugin in the entry's folder. sha256: of all files next to it."""

    file: Annotated[str, Field(pattern=rf"^{CODE}/[^/\\]+\.py$", title=f"a file in {CODE}/, such as {CODE}/mine.py")]
    sha256: Digest


class Package(Keys):
    """A package of PyPI with one version. sha256: of its wheel, as pip checks it."""

    package: Annotated[str, Field(pattern=r"^[\w.-]+==[\w.+-]+$", title="a requirement such as fedbench-mine==1.0")]
    sha256: Digest


class Row(Keys):
    """An entry on one board. results: a folder of the repository, by default the entry's own. sha256: of what these
    results say of the method. space: further ranges of the tuning, for the method's own options."""

    version: Count
    state: Literal["submitted", "rerun", "signed", "challenged", "withdrawn"]
    sha256: Annotated[str, Field(pattern="^([0-9a-f]{64})?$", title="a SHA-256 in hex")] = ""
    results: str = ""
    space: dict[str, dict[str, list[Any]]] = {}


class Challenge(Keys):
    """Another setting of somebody's entry: the claim that its tuning missed it."""

    entry: str
    settings: dict[str, Any]


class Entry(Keys):
    """A method in one version with its rows, as `entry.yaml` says."""

    method: Name
    version: Count
    licence: str
    plugin: Literal["built-in"] | File | Package
    boards: dict[Name, Row]
    authors: list[str] = []
    paper: str = ""
    bibtex: str = ""
    challenge: Challenge | None = None
    _node: Node = PrivateAttr()
    _folder: Path = PrivateAttr()

    @property
    def folder(self) -> Path:
        """The folder of its file."""
        return self._folder

    @property
    def name(self) -> str:
        """`fedra/1`, as its folder is called."""
        return f"{self.method}/{self.version}"

    @property
    def place(self) -> str:
        """Its folder, as a command in the repository calls it."""
        return self.folder.relative_to(self.home.parent).as_posix()

    @property
    def home(self) -> Path:
        """The folder of the board that it is an entry of."""
        return self.folder.parents[2]

    @property
    def file(self) -> Path | None:
        """Its plugin's file; None where that is built in or a package."""
        return self.folder / self.plugin.file if isinstance(self.plugin, File) else None

    @property
    def files(self) -> list[str]:
        """The files of its plugin that a run is given; none of what is installed."""
        return [str(self.file)] if self.file else []

    @property
    def is_foreign(self) -> bool:
        """Whether it brings code that is not fedbench's."""
        return self.plugin != BUILT_IN

    @property
    def ranks(self) -> bool:
        """Whether it ranks on any board."""
        return any(row.state in RANKED for row in self.boards.values())

    def results(self, board: str) -> Path:
        """Where its results on a board are: a folder of the repository that it names, or its own."""
        named = self.boards[board].results
        return self.home.parent / named if named else self.folder / "results" / board

    def claim(self, board: str) -> str:
        """SHA-256 over what it claims on a board: code, results, settings; not its state."""
        kept = self.model_dump(include={"method", "version", "plugin", "challenge"}, mode="json")
        return hash_of_json([kept, self.boards[board].model_dump(exclude={"state"}, mode="json")])

    def put(self, board: str, **facts: str) -> None:
        """Put facts of its row on a board into its file, of which nothing else changes."""
        file = self.folder / ENTRY
        write_atomically(file, with_row(file.read_text("utf-8"), board, **facts).encode())

    def mark(self, *path: str) -> Mark:
        """Where a part of its file stands, or what is nearest around it."""
        while path and self._node.get(*path) is None:
            path = path[:-1]
        return self._node.at(*path).named


@dataclass(frozen=True)
class Home:
    """The folder of a board: its boards by name, and its entries."""

    folder: Path

    @cached_property
    def boards(self) -> dict[str, Board]:
        """Raises UserError with all that is wrong in their files, and where there are none."""
        problems, found = Problems(), dict[str, Board]()
        for file in sorted((self.folder / BOARDS).glob("*.yaml")):
            node = shaped(read(file, problems), Board, problems, "the board")
            if not len(problems):
                found[file.stem] = Board.model_validate(node.plain())
                found[file.stem]._node = node
                if found[file.stem].board != file.stem:
                    problems.add(found[file.stem].mark("board"), f"expected {file.stem}, as the file is called")
        problems.raise_any()
        if not found:
            raise UserError(
                f"{self.folder / BOARDS}: no boards are here; work in a clone of fedbench, or name --home DIR"
            )
        return found

    def board(self, name: str) -> Board:
        """One of them. Raises UserError with the nearest."""
        if name not in self.boards:
            hint = meant(name, self.boards, f"there are {', '.join(self.boards)}")
            raise UserError(f"no board is called {name!r}; {hint}")
        return self.boards[name]

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """By name, of every method the versions in turn. Raises UserError with all that is wrong in their files."""
        problems = Problems()
        files = (self.folder / ENTRIES).glob(f"*/*/{ENTRY}")
        found = [read_entry(file, problems) for file in sorted(files, key=lambda f: (f.parts[-3], len(f.parts[-2]), f))]
        problems.raise_any()
        return {entry.name: entry for entry in found if entry}

    def on(self, board: str) -> Iterator[tuple[Entry, Row]]:
        """The entries on a board with their rows there."""
        return ((entry, entry.boards[board]) for entry in self.entries.values() if board in entry.boards)

    def has_current(self, entry: Entry, board: str) -> bool:
        """Whether an entry has a row for a board's present version that is not withdrawn."""
        row = entry.boards.get(board)
        return row is not None and row.state != WITHDRAWN and row.version == self.board(board).version

    def standing(self, method: str, board: str) -> Entry | None:
        """The entry whose settings a method has on a board where others are compared with it.

        That is the newest one that ranks, or else the first: anybody may submit a later one.
        """
        found = [e for e, _ in self.on(board) if e.method == method and self.has_current(e, board)]
        ranked = [e for e in found if e.boards[board].state in RANKED]
        return next(iter([*reversed(ranked), *found]), None)


def with_row(text: str, board: str, **facts: Any) -> str:
    """The text of an entry with these facts in its row on a board; all else, comments and style too, stays."""
    yaml, out = YAML(typ="rt"), StringIO()  # which constructs plain values alone, and keeps how they are written
    yaml.preserve_quotes, yaml.width = True, 2**20
    whole = yaml.load(text)
    whole[BOARDS] = whole[BOARDS] or CommentedMap()
    if board not in whole[BOARDS]:
        whole[BOARDS][board] = CommentedMap()
        whole[BOARDS][board].fa.set_flow_style()
    whole[BOARDS][board].update(facts)
    yaml.dump(whole, out)
    return out.getvalue()


def read_entry(file: Path, problems: Problems, text: str | None = None) -> Entry | None:
    """The entry in a file, or in a text that is to be or was there; None where it is wrong, which `problems` say."""
    before = len(problems)
    node = shaped(read(file, problems, text), Entry, problems, "the entry")
    if len(problems) > before:
        return None
    entry = Entry.model_validate(node.plain())
    entry._node, entry._folder = node, file.absolute().parent
    if (entry.method, str(entry.version)) != file.absolute().parts[-3:-1]:
        problems.add(entry.mark("method"), f"{entry.name} lies in {'/'.join(entry.folder.parts[-2:])}; rename one")
    if entry.plugin != BUILT_IN:
        for key in ("authors", "paper", "bibtex"):
            if not getattr(entry, key):
                problems.add(entry.mark("plugin"), f"an entry that is not built in needs {key}")
    return entry


def hash_of_code(folder: Path) -> str:
    """SHA-256 over every file of a folder of code, by its path there; what Python has compiled is left out."""
    found = [file for file in sorted(folder.rglob("*")) if file.is_file() and "__pycache__" not in file.parts]
    return hash_of_json({file.relative_to(folder).as_posix(): hash_of_file(file) for file in found})


def named_rows(results: Sequence[Result], method: str, board: Board, variant: str) -> list[Result]:
    """Those of a method at the board's point, candidates of its tuning too."""
    names = (board.scenario, variant, method)
    return [one for one in results if (one.entry.scenario, one.entry.variant, one.entry.method) == names]


def hash_of_rows(results: Sequence[Result]) -> str:
    """SHA-256 over what results say, by their names, without timings, machine and git revision."""
    cells = {one.entry.title: digest_of_cell(one.folder, one.manifest) for one in results if one.manifest}
    return hash_of_json(cells)


def found_in(folder: Path) -> tuple[list[Result], list[str]]:
    """The results of a folder with all candidates, and what does not match its checksum. Raises UserError."""
    found = examine([folder], candidates=True).read(("eval", "rounds"))
    return found.results, list(found.wrong)


def registered(own: Sequence[Result]) -> str:
    """The registered method behind the label of results."""
    return str(next((one.manifest["config"]["method"]["name"] for one in own if one.manifest), ""))
