"""An outside method's way from a file to the site, by commands that each say the next."""

from __future__ import annotations

from fedbench.board.entries import Home


def test_an_outside_method_gets_from_its_file_to_a_rank_in_at_most_six_commands(walked):
    folder, done = walked
    assert [line.split()[:3] for line, _ in done] == [
        ["fedbench", "board", "new"],
        ["fedbench", "board", "check"],
        ["git", "add", "board/entries/mine/1"],
        ["git", "commit", "-m"],
        ["fedbench", "board", "rerun"],
        ["fedbench", "board", "build"],
    ], "\n\n".join(f"$ {line}\n{output}" for line, output in done)
    entry = Home(folder / "board").entries["mine/1"]
    assert entry.boards["lite"].state == "rerun"
