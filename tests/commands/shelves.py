"""`fedbench data` in a folder of a test's own."""

from __future__ import annotations

import json
from pathlib import Path

from command import fedbench


def data(*words: object, cwd: Path, code: int = 0) -> str:
    """What `fedbench data ...` says on a screen of 80 columns; only paths and mistakes are longer."""
    result = fedbench("data", *words, cwd=cwd, columns=80)
    assert result.exit_code == code, result.output
    lines = result.output.splitlines()
    if "--json" not in words and not lines[0].startswith("Error"):
        assert all(len(line) <= 80 or str(cwd) in line for line in lines)
    return result.output


def as_json(*words: object, cwd: Path, code: int = 0):
    return json.loads(data(*words, "--json", cwd=cwd, code=code))


def flat(text: str) -> str:
    return " ".join(text.split())


def findings(*words: object, cwd: Path, code: int = 0) -> list[tuple[str, str]]:
    [report] = as_json("check", *words, cwd=cwd, code=code)
    return [(finding["level"], flat(finding["text"])) for finding in report["findings"]]
