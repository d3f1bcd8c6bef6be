"""What is kept of what a cell prints."""

from __future__ import annotations

import os

from fedbench.runs.executors.output import KEPT, OUTPUT, Output, traceback_in


def output_of(*texts: bytes) -> Output:
    said, voice = os.pipe()
    output = Output(said)
    for text in texts:
        os.write(voice, text)
        assert output.read()
    assert not output.read() and output.open
    os.close(voice)
    assert not output.read() and not output.open
    os.close(said)
    return output


def test_short_output_is_kept_whole(tmp_path):
    output = output_of(b"one\n", b"two\xff\n")
    output.write(tmp_path)
    assert (tmp_path / OUTPUT).read_text() == "one\ntwo\N{REPLACEMENT CHARACTER}\n"


def test_of_long_output_beginning_and_end_are_kept():
    text = output_of(b"a" * KEPT, b"b" * 12_345, b"c" * KEPT).text()
    assert text == "a" * KEPT + "\n... 12,345 bytes left out ...\n" + "c" * KEPT
    assert output_of(b"a" * KEPT, b"c" * KEPT).text() == "a" * KEPT + "c" * KEPT


def test_a_cell_that_prints_nothing_leaves_no_file_and_no_older_one(tmp_path):
    output_of().write(tmp_path)
    assert not (tmp_path / OUTPUT).exists()
    (tmp_path / OUTPUT).write_text("of an earlier run")
    output_of().write(tmp_path)
    assert not (tmp_path / OUTPUT).exists()


def test_the_last_stack_of_faulthandler_is_found():
    stack = "Stack (most recent call first):\n  File x"
    crash = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n  File y"
    assert traceback_in("nothing\n") is None
    assert traceback_in(f"hello\n{stack}\n") == stack
    assert traceback_in(f"{stack}\n{crash}\n\nExtension modules: numpy, torch (total: 2)\n") == crash
