"""fedbench report --watch: the page follows a run."""

from __future__ import annotations

from command import fedbench
from factories import eval_rows, write_cell


def test_watching_writes_the_page_anew_when_a_cell_has_ended(tmp_path, monkeypatch):
    """And says once that there is nothing to show yet; Ctrl-C ends it."""
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        if len(looks) == 2:
            write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
        if len(looks) == 4:
            write_cell(tmp_path / "s", "depthfl", evaluation=eval_rows({1: {"a": 0.7}}))
        if len(looks) == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr("fedbench.commands.report.time.sleep", sleep)
    (tmp_path / "s").mkdir()
    done = fedbench("report", "s", "--watch", "--every", "0.5", cwd=tmp_path)
    assert done.exit_code == 0 and done.stdout.count("report.html") == 2 and looks == [0.5] * 6
    assert done.stderr.count("waiting") == 1 and "depthfl" in (tmp_path / "report.html").read_text()
