"""Commands that read tables end with the exit code that they mean: no thread of Arrow's holds what Python frees."""

from __future__ import annotations

import subprocess
from collections import Counter

import pytest
from command import MAIN, environment
from factories import write_suite
from pyarrow import NativeFile, PythonFile, Table, parquet

from fedbench.data.tables import rows_of
from fedbench.results import content_hash, examine, load_results
from fedbench.results.columns import COLUMNS

AT_ONCE, TIMES = 8, 40


@pytest.fixture
def watched(monkeypatch):
    """How Parquet files are opened and read: whether in other threads, and by Python."""
    seen = []

    class Watched(parquet.ParquetFile):
        def __init__(self, source, *, pre_buffer=True, **given):
            by_python = isinstance(source, PythonFile) or not isinstance(source, NativeFile)
            seen.append(("opened", pre_buffer, by_python))
            super().__init__(source, pre_buffer=pre_buffer, **given)

        def read(self, columns=None, use_threads=True, **given):
            seen.append(("read", use_threads, False))
            return super().read(columns, use_threads=use_threads, **given)

        def iter_batches(self, *given, use_threads=True, **named):
            seen.append(("read", use_threads, False))
            return super().iter_batches(*given, use_threads=use_threads, **named)

    monkeypatch.setattr(parquet, "ParquetFile", Watched)
    return seen


def test_packed_tables_those_of_cells_and_of_texts_are_read_in_the_thread_that_asks(watched, tmp_path):
    for packed in (True, False):
        folder = write_suite(tmp_path / f"{packed}" / "quick", (0,), packed=packed)
        examine([folder]).read(COLUMNS)
        content_hash(folder)
        assert len(load_results(folder))
    parquet.write_table(Table.from_pydict({"text": ["a"], "label": ["b"]}), tmp_path / "texts.parquet")
    assert len(list(rows_of(tmp_path / "texts.parquet", ["text", "label"]))) == 1
    assert len(watched) > 10 and {(threads, by_python) for _, threads, by_python in watched} == {(False, False)}


@pytest.mark.slow
@pytest.mark.parametrize("command", ["compare hash", "plan"])
def test_eight_commands_at_once_forty_times_all_end_with_0(tmp_path, command):
    write_suite(tmp_path / "quick")
    words = [*command.split(), "quickstart" if command == "plan" else "quick"]
    codes: Counter[int] = Counter()
    for _ in range(TIMES):
        running = [
            subprocess.Popen([*MAIN, *words], cwd=tmp_path, env=environment(), stdout=-3, stderr=-3)
            for _ in range(AT_ONCE)
        ]
        codes.update(one.wait(300) for one in running)
    assert codes == {0: AT_ONCE * TIMES}
