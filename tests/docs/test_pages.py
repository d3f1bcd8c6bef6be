"""Every page, and what commands say of themselves: command lines parse, links lead somewhere, lines are short."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
from pages import PAGES, ROOT, blocks, prose

from fedbench.cli import main
from sitemaking.commands import walk


def command_lines() -> Iterator:
    """Every `fedbench ...` of the pages: lines of shell blocks, and what stands in backticks."""
    for page in PAGES:
        lines = [line for block in blocks(page, "sh", "bash", "console") for line in block.text.splitlines()]
        mentions = [part for line in re.findall(r"`(fedbench\s[^`]+)`", prose(page)) for part in line.split(" && ")]
        for line in [*lines, *mentions]:
            found = re.search(r"(?:^|[\s/])fedbench\s+(?=[a-z])(.*)", line, flags=re.DOTALL)
            if found and not re.search(r"\[|\.\.\.", line):
                yield page.name, found[1], line not in lines


def examples_of_help() -> Iterator:
    """Every example that a command gives of itself: what the site shows, too."""
    for path, context in walk():
        for part in re.findall(r"\x08\n(.*?)(?:\n\s*\n|\Z)", context.command.help or "", flags=re.DOTALL):
            for line in re.findall(r"^ *fedbench (\S.*?)(?:  +.*)?$", part, flags=re.MULTILINE):
                yield " ".join(path), line, False


def test_every_command_line_is_one():
    lines, wrong = {*command_lines(), *examples_of_help()}, []
    for place, line, is_mention in sorted(lines):
        try:
            understood(line, is_mention)
        except (AssertionError, ValueError, click.ClickException, click.exceptions.Exit) as error:
            wrong.append(f"{place}: {line}: {error}")
    assert len(lines) > 100 and not wrong, "\n".join(wrong)


def understood(line: str, is_mention: bool) -> None:
    """Parse a command line as it would be. Raises what click does, or AssertionError."""
    words = shlex.split(re.split(r" > (?=[\w./]+$)", line)[0], comments=True)
    command, name = main, "fedbench"
    while isinstance(command, click.Group) and words:
        name, command, words = command.resolve_command(click.Context(command, info_name=name), words)
    if words or not is_mention:  # the text may speak of `fedbench run` without saying what
        assert not isinstance(command, click.Group), "which command?"
        command.make_context(name, words)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_no_link_is_broken_and_no_line_too_long():
    for page in PAGES:
        links_and_lines(page)


def links_and_lines(page: Path) -> None:
    for target in re.findall(r"\[[^\]\n]*\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}"
    lines = enumerate(page.read_text().splitlines(), 1)
    long = [n for n, line in lines if len(line) > 120 and not line.startswith("| ")]  # a row cannot be broken
    assert not long, f"{page.name}: lines {long}"


GROUPS = {"fedbench.commands", "fedbench.trackers"}  # of entry points


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def test_every_name_and_file_of_the_code_is_there():
    text = "\n".join(page.read_text() for page in PAGES)
    names = set(re.findall(r"(?<![\w/.-])fedbench(?:\.[A-Za-z_]\w*)+", text)) - GROUPS
    files = set(re.findall(r"(?<![\w/.])(?:fedbench|plugins|tests|docs|suites)/[\w/]+\.(?:py|md|yaml)\b", text))
    names -= {name for name in names if name.endswith((".py", ".yaml"))}
    assert not [name for name in names if not is_there(name)]
    assert not [file for file in files if not (ROOT / file).is_file()]


def paragraphs(page: Path) -> list[str]:
    """The paragraphs and items of a page, without tables, code, pictures and the targets of links."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", lambda found: "" if found[0][0] == "!" else found[1], prose(page))
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) |\|)", re.sub(r"`[^`]*`|<!--.*?-->", "code", text))
    return [part for part in parts if part.strip() and not part.lstrip().startswith(("|", "#"))]


def test_no_paragraph_has_more_than_ninety_words():
    long = [f"{page.name}: {one}" for page in PAGES for one in paragraphs(page) if len(one.split()) > 90]
    assert not long, "\n\n".join(long)


def test_pages_are_short_in_total():
    pages = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]
    assert sum(page.stat().st_size for page in pages) <= 298_000


def test_findings_have_few_numbers():
    for paragraph in paragraphs(ROOT / "docs/findings.md"):
        assert len(re.findall(r"\d+(?:[.,]\d+)*", paragraph)) <= 3, paragraph
