"""A bundle: results, the code of their plugins and what they were computed with, in one zip file for an appendix."""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.results.identity import plugin_versions
from fedbench.results.index import INDEX, read_index
from fedbench.results.loading import load
from fedbench.results.result import Result
from fedbench.words import command_line, shortened

RESULTS, PLUGINS, FILES, PINS, ABOUT = "results", "plugins", "files", "requirements.txt", "README.txt"
CONTENTS = "bundle.json"  # which of its code are plugins, and which are modules that these import
MEMBER = re.compile(
    rf"{RESULTS}/[^/\\]+/[\w.-]+\.(?:json|parquet)|{PLUGINS}/(?:[\w-]+/)*[\w-]+\.py|{FILES}/[^/\\]+"
    rf"|{re.escape(PINS)}|{re.escape(ABOUT)}|{re.escape(CONTENTS)}"
)
MOST = 2**30  # bytes that all files of a bundle may have together
THEN = (1980, 1, 1, 0, 0, 0)  # of every file in it, so that equal contents are equal bundles


def write(
    bundle: Path,
    suites: Sequence[Path],
    code: Mapping[str, Mapping[str, bytes]],
    versions: Mapping[str, str],
    files: Sequence[Path],
) -> list[str]:
    """Write a bundle of packed suites' folders, without the states of models.

    Args:
        bundle: the zip file.
        suites: folders of suites whose finished cells are packed.
        code: by the name of a plugin's file, its sources by their paths, see `fedbench.registry.installed.sources_of`.
        versions: by that name, what identifies its code now.
        files: further files, such as the suite.

    Returns:
        The names of what is in it.

    Raises:
        UserError: for the code of a plugin that is not given, or is not that of the results; two files of one name.
    """
    results = load(suites, candidates=True)
    _require_code(results, versions)
    members: dict[str, bytes] = {}

    def add(name: str, content: bytes) -> None:
        if members.get(name, content) != content:
            raise UserError(f"{bundle}: two files would be called {name}")
        members[name] = content

    for suite in suites:
        index = read_index(suite)
        assert index is not None
        for name in (INDEX, *(table.file for table in index.tables.values())):
            add(f"{RESULTS}/{suite.name}/{name}", (suite / name).read_bytes())
    for path, source in (item for sources in code.values() for item in sources.items()):
        add(f"{PLUGINS}/{path}", source)
    for file in files:
        if not file.is_file():
            raise UserError(f"--with {file}: there is no such file")
        add(f"{FILES}/{file.name}", file.read_bytes())
    add(PINS, _pins(results).encode())
    add(CONTENTS, json.dumps({"plugins": sorted(code)}).encode())
    add(ABOUT, _about(bundle, suites, code).encode())
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in sorted(members.items()):
            made.writestr(zipfile.ZipInfo(name, THEN), data, zipfile.ZIP_DEFLATED)
    write_atomically(bundle, content.getvalue())
    return sorted(members)


def _require_code(results: Iterable[Result], versions: Mapping[str, str]) -> None:
    """Raises UserError for code that computed a cell and is not given as it was."""
    needed = {item for one in results if one.manifest for item in plugin_versions(one.manifest).items()}
    for name, version in sorted(needed):
        if name.endswith(".py") and name not in versions:
            raise UserError(f"these results were computed with {name}, {version}: give --plugin {name}")
        if name.endswith(".py") and versions[name] != version:
            raise UserError(f"--plugin {name} is {versions[name]}, and these results were computed with {version}")


def _pins(results: Iterable[Result]) -> str:
    """The packages that cells were computed with, as pip reads them; several versions of one are comments."""
    found: dict[str, dict[str, None]] = {}
    for one in results:
        for name, version in ((one.manifest or {}).get("versions") or {}).items():
            if not name.endswith(".py"):
                found.setdefault(name, {})[str(version)] = None
    lines = []
    for name, several in sorted(found.items()):
        if len(several) == 1 and name != "fedbench" and "+sha256" not in (pin := next(iter(several))):
            lines.append(f"{name}=={pin}")
        else:
            lines.append(f"# {name}: {', '.join(several)}")
    return "\n".join([*lines, ""])


def _about(bundle: Path, suites: Sequence[Path], code: Mapping[str, Mapping[str, bytes]]) -> str:
    """What the bundle has, and the command that runs it again."""
    again = command_line(["fedbench", "reproduce", bundle.name, *(["--trust-plugins"] if code else [])])
    if any(len(sources) > 1 for sources in code.values()):  # modules next to a plugin, which Python has to find
        plugins = (f"--plugin {PLUGINS}/{name}" for name in sorted(code))
        again = f"unzip {bundle.name}\n  PYTHONPATH={PLUGINS} fedbench reproduce {RESULTS} {' '.join(plugins)}"
    return (
        f"Results of {', '.join(suite.name for suite in suites)}, made with fedbench: scores and costs of every round, "
        "settings, hashes\nof data and weights, without the models.\n\n"
        f"  {RESULTS}/  packed tables: `fedbench compare {RESULTS}` after unpacking\n"
        f"  {PLUGINS}/  code that is not fedbench's\n"
        f"  {PINS}  what the cells were computed with\n\n"
        f"To run all cells again and compare each:\n\n  {again}\n"
    )


def unpack(bundle: Path, into: Path) -> tuple[list[Path], list[Path]]:
    """Unpack a bundle.

    Returns:
        The folders of suites, and the files of plugins.

    Raises:
        UserError: for what is no bundle, or has other files than one has.
    """
    try:
        with zipfile.ZipFile(bundle) as given:
            _write_members(bundle, given, into)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:  # damaged, encrypted, packed otherwise
        raise UserError(f"{bundle}: cannot be read as a bundle: {error}") from error
    try:
        plugins = [f"{PLUGINS}/{name}" for name in json.loads((into / CONTENTS).read_bytes())["plugins"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{bundle}: cannot be read as a bundle: {CONTENTS}: {error}") from error
    if not all(MEMBER.fullmatch(plugin) and (into / plugin).is_file() for plugin in plugins):
        raise UserError(f"{bundle}: {CONTENTS} names plugins that are not in it")
    return sorted(path.parent for path in into.glob(f"{RESULTS}/*/{INDEX}")), [into / plugin for plugin in plugins]


def _write_members(bundle: Path, given: zipfile.ZipFile, into: Path) -> None:
    """Write the files of a bundle. Raises UserError where it has others than a bundle has."""
    infos = [info for info in given.infolist() if not info.is_dir()]
    names = [info.filename for info in infos]
    if odd := [name for name in names if not MEMBER.fullmatch(name) or ".." in name.split("/")]:
        raise UserError(f"{bundle}: a bundle of `fedbench pack` has no {shortened(odd, 3)}")
    if len(set(names)) < len(names) or CONTENTS not in names:
        raise UserError(f"{bundle}: no bundle of `fedbench pack`")
    if sum(info.file_size for info in infos) > MOST:
        raise UserError(f"{bundle}: its files have more than {MOST >> 20} MiB together")
    for name in names:
        file = into / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(given.read(name))


def is_bundle(path: str) -> bool:
    """Whether a path is that of a zip file."""
    return path.endswith(".zip") and Path(path).is_file()
