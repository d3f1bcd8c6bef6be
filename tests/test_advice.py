"""Advice that can work: every extra, command, option and page that code and docs name is there."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest

from fedbench.cli import main
from fedbench.commands.run import files
from fedbench.errors import UserError
from fedbench.registry import installed

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
CODE = sorted((*ROOT.glob("fedbench/**/*.py"), *ROOT.glob("plugins/**/*.py")))
DOCS = [
    path
    for where in ("[!C]*.md", "CONTRIBUTING.md", "docs/**/*.md", "suites/**/*.md", "results/reference/*.md")
    for path in sorted(ROOT.glob(where))
]
WRITTEN = [path for path in sorted(ROOT.glob("fedbench/scaffold/**/*")) if path.suffix in (".template", ".yaml", ".md")]
SUITES = sorted(ROOT.glob("suites/**/*.yaml"))
OTHERS = {
    "--porcelain",
    "--unshallow",
    "--untracked-files",
    "--array",
    "--no-deps",
    "--no-binary",
    "--force-reinstall",
    "--help",
    "--version",
    "--user",
    "--upgrade",
    "--logdir",
}


def commands(group: click.Group = main, words: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    """Every command by its words."""
    found: dict[tuple[str, ...], click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found[*words, name] = command
        if isinstance(command, click.Group):
            found |= commands(command, (*words, name))
    return found


COMMANDS = commands()
OPTIONS = {
    option for one in COMMANDS.values() for param in one.params for option in (*param.opts, *param.secondary_opts)
}


LOOKED_FOR = re.compile(r"fedbench[\w-]*\[|pip install|fedbench [a-z\\{]|--[a-z]|docs/\w")  # see `wrong_advice`


def texts(path: Path) -> list[str]:
    """What a file says to people: the strings of code with a blank for each value in them; all of a page."""
    if path.suffix != ".py":
        return [re.sub(r"^# +", "", path.read_text(), flags=re.MULTILINE)]
    found, inner, source = [], set(), path.read_text()
    for node in ast.walk(ast.parse(source)) if LOOKED_FOR.search(source) else ():
        if isinstance(node, ast.JoinedStr):
            inner |= {id(part) for part in node.values}
            found.append("".join(p.value if isinstance(p, ast.Constant) else "{}" for p in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            found.append(node.value)
    return found


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_extra_command_option_and_page_is_there():
    found = {named(path): wrong for path in (*CODE, *DOCS, *WRITTEN, *SUITES) if (wrong := wrong_advice(path))}
    assert not found


def wrong_advice(path: Path) -> list[str]:
    """What a file names and nobody has."""
    wrong: list[str] = []
    for text in texts(path):
        for package, extras in re.findall(r"\b(fedbench[\w-]*)\[([\w,-]+)\]", text):
            wrong += [package] * (package != PROJECT["name"])
            wrong += [f"extra {extra}" for extra in extras.split(",") if extra not in EXTRAS]
        wrong += re.findall(r"(?<!not `)pip install '?fedbench(?![\w-])", text)
        for quote, line in re.findall(r"(^ *|`)fedbench ((?:[^`\n]|\\\n)+)", text, re.MULTILINE):
            words = re.split(r"#|&&|\||;|>", line)[0].replace("\\\n", " ").split()
            wrong += faults(words, quoted=quote == "`")
        if path.suffix == ".py":
            options = re.findall(r"(?<![\w-])--[a-z][a-z-]*(?![\w=-]*:)", text)
            wrong += [option for option in options if option not in OPTIONS | OTHERS and option not in own(path)]
            wrong += [page for page in re.findall(r"docs/\w+\.md", text) if not (ROOT / page).is_file()]
    return wrong


def own(path: Path) -> set[str]:
    """Options that the file's own arguments define, such as those of a plugin's command."""
    return set(re.findall(r'"(--[a-z-]+)', path.read_text()))


def faults(words: list[str], quoted: bool) -> list[str]:
    """What `fedbench WORDS` cannot be. quoted: it is a command, and not a sentence that begins so."""
    group: tuple[str, ...] = ()
    while words and (*group, words[0]) in COMMANDS:
        group, words = (*group, words[0]), words[1:]
    if not group:
        return [f"command {words[0]}"] if quoted and words and re.fullmatch(r"[a-z_]+", words[0]) else []
    suites = [word for word in words if re.match(r"suites/[a-z0-9_/]+\.yaml$", word)]
    if missing := [word for word in suites if not (ROOT / word).is_file()]:
        return [f"file {missing[0]}"]
    below = [one for words_of, one in COMMANDS.items() if words_of[: len(group)] == group]  # a group has a default view
    known = {option for one in below for param in one.params for option in (*param.opts, *param.secondary_opts)}
    given = [re.match(r"--[a-z][a-z-]*", word) for word in words]
    return [f"fedbench {' '.join(group)} {one[0]}" for one in given if one and one[0] not in known | {"--help"}]


def test_a_tracker_whose_package_is_missing_names_what_can_be_installed(monkeypatch):
    points, _ = installed.by_name("fedbench.trackers")
    monkeypatch.setattr("fedbench.commands.run.find_spec", lambda name: None)
    assert {"mlflow", "tensorboard"} <= points.keys()
    for name, point in points.items():
        assert isinstance(point, EntryPoint)
        with pytest.raises(UserError) as caught:
            files([name])
        (advice,) = re.findall(r"pip install (\S+)", str(caught.value))
        extra = re.fullmatch(r"'fedbench-heft\[(\w+)\]'", advice)
        assert extra[1] in EXTRAS if extra else advice == point.load().NEEDS
