"""Files to begin from: templates, copies of shipped suites, and the JSON Schema by which editors know suites.

What is written names a schema in the cache folder. The one that ships knows what comes with fedbench, next to the
shipped suites; `fedbench schema` prints one that knows what is installed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import keyword
import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedbench.disk import OTHER_CACHE, cache_dir, write_atomically
from fedbench.errors import UserError
from fedbench.words import command_line, is_text, on_a_line

SCHEMA = "suite.schema.json"
LINE = "# yaml-language-server: $schema="  # of the YAML language server, which VS Code, Neovim, Helix and others run
_THERE = re.compile(rf"(?:^|(?<=\ufeff)){re.escape(LINE)}\S*$", re.MULTILINE)
_HEAD = re.compile(r"\ufeff?(# fedbench .*\n)?")


def filled(kind: str, words: Mapping[str, str]) -> dict[Path, bytes]:
    """The files of a template by their places in the folder to come, each word in place of its name, in paths as in
    texts: `NAME` and the like, which stand nowhere else. What is put in may be called as a word is."""
    if odd := [value for value in words.values() if not is_text(value)]:
        raise UserError(f"{odd[0]}: a name in this is not UTF-8, as suites are; rename that folder")
    top = Path(str(files("fedbench.scaffold"))) / kind
    return {
        Path(_with(words, file.relative_to(top).with_suffix("").as_posix())): _with(
            words, file.read_text("utf-8")
        ).encode()
        for file in sorted(top.rglob("*.template"))
    }


def put(made: Mapping[Path, bytes], folder: Path = Path()) -> None:
    """Write files that are not there yet, all or none. Raises UserError, before anything is written, where one of them
    is; or where one cannot be written."""
    if taken := [str(folder / path) for path in made if (folder / path).exists()]:
        raise UserError(f"{', '.join(taken)}: already there; nothing was written. Choose another place, or move it.")
    missing = {folder / path: content for path, content in made.items()}
    new_folders = {above for file in missing for above in file.parents if not above.exists()}
    try:
        for file, content in missing.items():
            write_atomically(file, content, "Choose another place.")
    except BaseException:
        for file in missing:
            file.unlink(missing_ok=True)
        for empty in sorted(new_folders, key=lambda above: -len(above.parts)):
            with suppress(OSError):  # never made, or somebody else's files are in it
                empty.rmdir()
        raise


def _with(words: Mapping[str, str], text: str) -> str:
    longest_first = sorted(words, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda found: words[found[0]], text)


def suite_name(path: str | Path) -> str:
    """What a suite is called after a file or a folder; "" where its name has no letter that a suite can have."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", Path(os.path.abspath(path)).name).strip("_.-")


def renamed(text: str, name: str) -> str:
    """A suite's text with another name, its own where that is empty."""
    return re.sub(r"^suite:.*$", f"suite: {name}", text, count=1, flags=re.MULTILINE) if name else text


def copied(source: Path, target: Path, name: str = "") -> dict[Path, bytes]:
    """A shipped suite as the file `target`, under a name of its own if one is given, with a paper's numbers that it
    reads: files and their content."""
    from fedbench.suite.yaml import Problems, read

    text = source.read_text("utf-8")
    first, _, rest = text.partition("\n")
    if first.startswith("# fedbench run "):
        text = f"# {on_a_line(command_line(['fedbench', 'run', str(target)]))}\n{rest}"
    made = {}
    if numbers := read(source, Problems()).get("expected", "file"):
        other = source.parent / numbers.value
        text = text.replace(f"file: {numbers.value}", f"file: {other.name}", 1)
        made[target.with_name(other.name)] = other.read_bytes()
    address = address_of(shipped_schema().read_bytes())
    return {target: with_schema_line(renamed(text, name), address).encode(), **made}


def address_of(schema: bytes) -> str:
    """Where editors find a schema: a file in the cache folder, which is written if it is not there."""
    file = cache_dir() / "schema" / f"{hashlib.sha256(schema).hexdigest()[:16]}.json"
    if not file.exists():
        write_atomically(file, schema, OTHER_CACHE)
    return file.as_uri()


def with_schema(made: Mapping[Path, bytes], schema: bytes) -> dict[Path, bytes]:
    """Files to be written, in which suites name that schema."""
    address = address_of(schema)
    return {
        path: with_schema_line(content.decode(), address).encode() if path.suffix == ".yaml" else content
        for path, content in made.items()
    }


def shipped_schema() -> Path:
    """The schema next to the shipped suites."""
    return Path(str(files("fedbench_suites"))) / SCHEMA


def dumped(schema: dict[str, Any]) -> bytes:
    """The text of a schema's file."""
    return (json.dumps(schema, indent=1, ensure_ascii=False) + "\n").encode()


def knowing(kind: str, name: str) -> bytes:
    """The shipped schema with one more component, that of a plugin which is being begun. kind: of a component, or any
    other, which suites do not name."""
    schema = json.loads(shipped_schema().read_bytes())
    if names := schema["$defs"].get(f"{kind}_name"):
        names["anyOf"].append({"const": name, "description": "your own"})
    return dumped(schema)


def with_schema_line(text: str, address: str) -> str:
    """A suite's text with the line that names a schema: in place of another, else behind the comment that says how it
    is run, else on top."""
    line = f"{LINE}{address}"
    if _THERE.search(text):
        return _THERE.sub(lambda _: line, text, count=1)
    head = _HEAD.match(text)[0]  # type: ignore[index]  # it matches nothing, too
    return f"{head}{line}\n{text[len(head) :]}"


@dataclass(frozen=True)
class Begun:
    """What the suite of a kind says where kinds differ; NAME stands for the component. run: how it is run."""

    methods: str
    backbone: str = "micro_vit"
    adapter: str = "{name: lora, rank: 8, alpha: 8, dropout: 0.0}"
    images: str = "{name: strokes6, image_size: 32}"
    metrics: str = "accuracy"
    capacities: str = "[12, 10, 8, 6, 4, 3]"
    sweep: str = ""
    run: str = "fedbench run suite.yaml"


@functools.cache
def kinds() -> Mapping[str, Begun]:
    """All there are, by what the command line calls them."""
    kinds_of_file = tomllib.loads((Path(str(files("fedbench.scaffold"))) / "package/kinds.toml").read_text("utf-8"))
    return {kind: Begun(**words) for kind, words in kinds_of_file.items()}


LIKE = re.compile(r"[a-z][a-z0-9_]*")


def study(kind: str, name: str) -> dict[Path, bytes]:
    """The files of a folder to begin in, called `name`: a component of that kind, a suite with it, and a README."""
    own = f"my_{kind}"
    made = filled("study", {"STUDY": name, "my_allocation": own})
    if kind != "allocation":
        words = _words(kind, own)
        words |= {"RUN": f"{words['RUN']} --plugin {own}.py", "MODULE": own}
        parts = {**filled("package/common", words), **filled(f"package/{kind}", words)}
        suite = renamed(parts[Path("suite.yaml")].decode(), name).encode()
        made |= {Path(f"{own}.py"): parts[Path(f"{own}.py")], Path("suite.yaml"): suite}
    return with_schema(made, knowing(kind, own))


def package(kind: str, name: str) -> dict[Path, bytes]:
    """The files of a package with a component of that kind and name, by their places. Raises UserError."""
    words = _words(kind, name)
    return with_schema({**filled("package/common", words), **filled(f"package/{kind}", words)}, knowing(kind, name))


def _words(kind: str, name: str) -> dict[str, str]:
    """What stands in the place of the words of a package's templates. Raises UserError for a name of no function."""
    if not LIKE.fullmatch(name) or keyword.iskeyword(name):
        raise UserError(f"{name!r} cannot be the name of a function: lower-case letters, digits and _, a letter first")
    begun = {key: text.replace("NAME", name) for key, text in asdict(kinds()[kind]).items()}
    sweep = f"sweep:\n  {begun['sweep']}\n\n" if begun["sweep"] else ""
    article = "an" if kind[0] in "aeo" else "a"
    return {
        **{key.upper(): text for key, text in begun.items()},
        "METHODS": f"[{begun['methods']}]",
        "METRICS": f"[{begun['metrics']}]",
        "SWEEP": sweep,
        "KIND": f"{article} {kind}",
        "KEY": kind,
        "MODULE": f"fedbench_{name}",
        "DIST": f"fedbench-{name.replace('_', '-')}",
        "VARIABLE": f"{name.upper()}_FILE",
        "NAME": name,
    }
