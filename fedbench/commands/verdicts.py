"""`fedbench plugins check`: each component is checked in a separate process with a deadline and a memory limit."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fedbench.errors import UserError
from fedbench.processes.supervisor import ChildFailed, call
from fedbench.words import meant

DEADLINE = 300.0  # seconds that the check of one component may take
MEMORY_SHARE = 0.8  # of the memory that is available, which one check may take
BROKEN = "BROKEN"
_FRAME = re.compile(r'File "(.+)", line (\d+)')  # of a stack that faulthandler printed


Verdict = tuple[str, str, str]  # see `fedbench.testing.component_check.Verdict`, which comes with torch


@dataclass(frozen=True)
class CheckedComponent:
    """A component to be checked. options: the names of its options. open: whether it takes any other option too."""

    kind: str
    name: str
    plugin: str
    options: Sequence[str]
    open: bool


class PluginCheck:
    """A call of `fedbench plugins check`.

    printed: what plugins wrote to stdout and stderr.
    """

    def __init__(
        self,
        names: Sequence[str],
        plugins: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        """Args:
            names: files, components, plugins or packages.
            plugins: files that are loaded too.
            options: values of options, for the components that have them.
            deadline: seconds that each check may take.

        Raises:
            UserError: for a file that is not there.
        """
        for name in names:
            if name.endswith(".py") and not os.path.isfile(name):
                raise UserError(f"{name}: there is no such file")
        self.names, self.plugins, self.options = names, list(plugins), dict(options or {})
        self.deadline, self.printed = deadline, ""
        self.memory_limit = int(MEMORY_SHARE * psutil.virtual_memory().available)

    def verdicts(self) -> Iterator[Verdict]:
        """One for each component, in turn. Raises UserError for a name or an option that nobody has."""
        found, loaded = dict[CheckedComponent, None](), list[str]()  # files, which may need each other
        for name in self.names:
            argument = {"name": name, "plugins": self.plugins}
            try:
                made = self._call("found", argument)
            except ChildFailed as error:
                yield BROKEN, f"plugin {Path(name).name}", f"the process that loads it {self._reason(error)}"
                continue
            yield from map(tuple, made["verdicts"])
            loaded += [name] if name.endswith(".py") and made["components"] else []
            found |= dict.fromkeys(
                CheckedComponent(**{**one, "options": tuple(one["options"])}) for one in made["components"]
            )
        check_options(found, self.options)
        for one in found:
            asked = {"kind": one.kind, "name": one.name, "plugin": one.plugin, "options": self.options}
            try:
                yield tuple(self._call("judged", {**asked, "plugins": [*self.plugins, *loaded]}))
            except ChildFailed as error:
                yield BROKEN, f"{one.kind} {one.name}", f"the process that checks it {self._reason(error)}"

    def _call(self, function: str, argument: Mapping[str, Any]) -> Any:
        limits: dict[str, Any] = {"timeout": self.deadline, "memory_limit": self.memory_limit}
        return call(f"fedbench.testing.component_check:{function}", argument, **limits, on_output=self._print)

    def _print(self, output: str) -> None:
        self.printed += output

    def _reason(self, error: ChildFailed) -> str:
        """How the process ended, where it was, and what to do about that."""
        reason = f"{error.reason}{_place(error.traceback or '')}"
        if error.late:
            return f"{reason}: does it loop, or wait for something? If it only takes long, give --deadline more"
        if "exit code" in error.reason:
            return f"{reason}: a plugin must not end it (sys.exit, os._exit), but raise"
        return reason


def check_options(found: Collection[CheckedComponent], options: Mapping[str, Any]) -> None:
    """Raises UserError for an option that none of the components has."""
    known = {option for component in found for option in component.options}
    if any(component.open for component in found) or not found:
        return
    for option in options:
        if option not in known:
            hint = meant(option, known)
            raise UserError(f"--set {option}: nothing that is checked has such an option; {hint}".rstrip("; "))


def _place(stack: str) -> str:
    """The innermost line in a file that is not installed, as ` (mine.py:12)`; "" where there is none."""
    for file, line in _FRAME.findall(stack):
        if "site-packages" not in file and not file.startswith(sys.base_prefix):
            return f" ({Path(file).name}:{line})"
    return ""
