"""Links of the pages: as they stand they lead through the repository; on the site, to pages and copies of files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Texts that lie elsewhere in the repository and have a page here.
ELSEWHERE = {
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "AGENTS.md": "agents.md",
    "CHANGELOG.md": "changes.md",
    "suites/papers/README.md": "papers_suites.md",
    "results/reference/README.md": "reference_results.md",
    "board/README.md": "board.md",
    "board/tutorial.md": "board_tutorial.md",
    "plugins/backbones/weights/PROVENANCE.md": "weights.md",
}
INSTEAD = {"README.md": "index.md"}
_LINK = re.compile(r"(\[[^\]\n]*\])\(([^)\s]+)\)")


def source_of(page: str) -> str:
    """Where in the repository a page of the site comes from."""
    return next((place for place, made in ELSEWHERE.items() if made == page), f"docs/{page}")


def relinked(markdown: str, page: str) -> str:
    """A page's text with its links to other files of the repository as links within the site; a link to a folder
    becomes its text."""
    source = source_of(page)
    return _outside_fences(markdown, lambda line: _LINK.sub(lambda found: _relinked(found, source, page), line))


def files_linked(pages: Mapping[str, str]) -> Iterator[str]:
    """The files of the repository, by their paths in it, that pages link to and that have no page. pages: texts by
    their places in the repository."""
    for source, text in pages.items():
        for found in _LINK.finditer(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
            target = _target(found[2].partition("#")[0], source)
            if target and not _page_of(target) and (ROOT / target).is_file():
                yield target


def copy_of(file: str) -> str:
    """Where the site has a copy of a file, under a name that browsers show rather than save."""
    return f"files/{file}" if file.endswith((".png", ".svg", ".html")) else f"files/{file}.txt"


def _relinked(found: re.Match, source: str, page: str) -> str:
    path, _, anchor = found[2].partition("#")
    target = _target(path, source)
    if target is None:
        return found[0]
    to = _page_of(target)
    if to is None:
        if not (ROOT / target).is_file():
            return found[1][1:-1]
        to = copy_of(target)
    way = posixpath.relpath(to, posixpath.dirname(page) or ".")
    return f"{found[1]}({way}{f'#{anchor}' if anchor else ''})"


def _target(path: str, source: str) -> str | None:
    """The file of the repository that a link leads to; None for one within its page, or to another site."""
    if not path or re.match("[a-z]+:", path):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), path))


def _page_of(target: str) -> str | None:
    if target.startswith("docs/") and target.endswith(".md"):
        return target.removeprefix("docs/")
    return ELSEWHERE.get(target) or INSTEAD.get(target)


def _outside_fences(markdown: str, change) -> str:
    inside, lines = False, []
    for line in markdown.split("\n"):
        if line.startswith("```"):
            inside = not inside
        lines.append(line if inside else change(line))
    return "\n".join(lines)
