"""The pages of the documentation: their fenced blocks, their prose, and what stands in backticks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(ROOT / name for name in ("suites/papers/README.md", "results/reference/README.md")),
    *(ROOT / name for name in ("board/README.md", "board/tutorial.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the last heading above it and where it begins."""

    language: str
    text: str
    heading: str
    place: str


def blocks(page: Path, *languages: str) -> list[Block]:
    found, heading, language, lines, start = [], "", None, [], 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if language is not None and line.startswith("```"):
            found.append(Block(language, "\n".join(lines) + "\n", heading, f"{page.name}:{start}"))
            language = None
        elif language is not None:
            lines.append(line)
        elif line.startswith("```"):
            language, lines, start = line[3:].strip(), [], number
        elif line.startswith("## "):
            heading = line[3:].strip().strip("`")
    assert language is None, f"{page.name}:{start}: this block is never closed"
    return [block for block in found if block.language in languages]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def in_code(page: str) -> set[str]:
    """Everything that stands in backticks in the prose of a page."""
    return set(re.findall(r"`([^`\n]+)`", prose(ROOT / "docs" / page)))


def place(block: Block) -> str:
    return block.place


HOOK_PAGES = sorted((ROOT / "docs/hooks").glob("*.md"))
EXAMPLES = [block for page in HOOK_PAGES for block in blocks(page, "python")]


def file_of(block: Block) -> str:
    return re.sub(r"\W", "_", f"example {block.place}") + ".py"
