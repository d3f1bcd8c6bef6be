"""Records of re-runs: what was run again, where and when, and what follows from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import Field, ValidationError
from typing_extensions import TypedDict

from fedbench.board.entries import CHALLENGED, RANKED, RERUN, SUBMITTED, Board, Day, Digest, Entry, Home, found_in
from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.report.leaderboards import Leaderboard, leaderboards
from fedbench.report.statistics.pairs import BETTER, WORSE
from fedbench.results import Result
from fedbench.results.diff import CLOSE, EQUAL
from fedbench.schema import adapter

HIDDEN, DRAWN, HELD_OUT = "hidden", "drawn", "held_out"


class Cell(TypedDict):
    """A submitted cell that ran again, with its score before and after."""

    seed: int
    change: str
    before: float | None
    after: float | None


class Fall(TypedDict):
    """How far the method and the control fall on new draws of the data, as fractions; None without scores."""

    fall: float | None
    control: str
    fall_of_control: float | None
    verdict: str


class Record(TypedDict):
    """What is read of a record. commit: from which the seeds follow. claim: what ran. rows: the methods on these seeds.
    results: where these are in the folder of the board."""

    board: str
    commit: Annotated[str, Field(pattern="^[0-9a-f]{40}$")]
    claim: Digest
    date: Day
    machine: dict[str, Any]
    isolated: str
    drawn: list[Cell]
    seeds: NotRequired[list[int]]
    rows: NotRequired[list[str]]
    results: NotRequired[str]
    held_out: NotRequired[Fall]
    challenge: NotRequired[dict[str, Any]]


def record_file(entry: Entry, board: str) -> Path:
    """Where the last re-run of an entry on a board is recorded."""
    return entry.folder / f"rerun-{board}.json"


def read_record(entry: Entry, board: str) -> dict[str, Any] | None:
    """What was run again, where and when; None where nothing was. Raises UserError for what is no record."""
    try:
        return dict(adapter(Record).validate_json(record_file(entry, board).read_bytes()))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors()[0]
        what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
        raise UserError(f"{record_file(entry, board)}: not a record of a re-run: {what}; run the entry again") from None


def board_of(results: Sequence[Result], board: Board, roles: Mapping[str, str]) -> Leaderboard | None:
    """The leaderboard of results of one point, from whichever folders; None where nothing has finished."""
    named = [replace(one, suite=board.board) for one in results if one.entry.candidate is None]
    if not any(one.status == "finished" for one in named):
        return None
    return max(leaderboards(named, board.metric, roles=roles), key=lambda found: len(found.rows))


def measured(folder: Path) -> list[Result]:
    """The results of all groups that were run into a folder."""
    return [one for group in sorted(folder.glob("*")) for one in found_in(group)[0]]


def objections(record: Mapping[str, Any]) -> list[str]:
    """Why a re-run does not let the entry rank, a sentence each."""
    found = [
        f"seed {row['seed']} is {row['change']}: {row['before']} submitted, {row['after']} run again"
        for row in record[DRAWN]
        if row["change"] not in (EQUAL, CLOSE)
    ]
    if "seeds" not in record:
        found.append("the salt of this board is secret, so nothing ran on hidden seeds: maintainers have --salt FILE")
    held = record.get(HELD_OUT, {})
    if held.get("verdict") == WORSE:
        falls = f"{100 * held['fall']:.1f} points and {held['control']} by {100 * held['fall_of_control']:.1f}"
        found.append(
            f"on new draws of the data it falls by {falls}, more than draws explain: does it know the test examples?"
        )
    return found


def concluded(home: Home, entry: Entry, board: str, record: Mapping[str, Any]) -> list[str]:
    """Write the record, and the states that follow from it; returns the objections."""
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    write_atomically(record_file(entry, board), text.encode())
    found = objections(record)
    if not found and entry.boards[board].state == SUBMITTED:
        entry.put(board, state=RERUN)
    if entry.challenge and record.get("challenge", {}).get("verdict") in (BETTER, WORSE):
        challenged = home.entries[entry.challenge.entry]
        if challenged.boards[board].state in RANKED:
            challenged.put(board, state=CHALLENGED)
    return found
