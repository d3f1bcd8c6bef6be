"""The tutorial: an outside method's way from a file to the site, by commands that each say the next."""

from __future__ import annotations

from outsider import COMMANDS

from fedbench.board.entries import Home


def test_an_outside_method_gets_from_its_file_to_a_rank_in_at_most_six_commands(walked):
    folder, done = walked
    told = "\n\n".join(f"$ {line}\n{output}" for line, output in done)
    assert [line for line, _ in done] == COMMANDS and len(COMMANDS) <= 6, told
    entry = Home(folder / "board").entries["mine/1"]
    assert entry.boards["lite"].state == "rerun"
