"""What only the chosen backbone, adapter and data set can tell: whether the capacities and ranks fit them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from fedbench.data.sources import located, relative_root
from fedbench.errors import DataMissing, UserError
from fedbench.suite.references import with_seed
from fedbench.suite.setting_layers import CORE_KEYS
from fedbench.suite.yaml import INVALID, Node, Problems
from fedbench.words import counted

_NOUNS = {"capacities": "capacity", "ranks": "rank", "widths": "width", "devices": "device"}
_NOT_A_WAY = ("server", "jitter", "wait_for", "known")  # other keys of `devices`


class Facts(Protocol):
    """Answers about components, from code that can load them. Each raises UserError where it does not know."""

    def num_layers(self, backbone: dict[str, Any]) -> int:
        """L of a complete reference to a backbone."""

    def domains(self, data: dict[str, Any]) -> Sequence[str]:
        """The names of a data set's domains, of the complete `data` part of a configuration."""

    def refuses_size(self, backbone: dict[str, Any], size: int) -> str:
        """Why a backbone takes no images of so many pixels a side; empty where it does."""


class Limits:
    """Checks settings against facts; each distinct backbone and data set is asked about once."""

    def __init__(
        self,
        facts: Facts | None,
        problems: Problems,
        overlays: Sequence[str] = (),
        base: Path = Path(),
        seed: int = 0,
    ) -> None:
        """Args:
        facts: of backbones and data, where they are known.
        problems: where faults are noted.
        overlays: what --data could name in place of data that are not there.
        base: of `located`.
        seed: one of the suite's, for options that are the seed.
        """
        self.facts, self.problems, self.overlays, self.base, self.seed = facts, problems, overlays, base, seed
        self._known: dict[str, Any] = {}

    def check(self, settings: Node) -> None:
        """Report capacities and ranks that no client of these settings could have. Without facts there is no more to
        check than ranks against the adapter's."""
        R, adapter = (settings.get("adapter", key) for key in ("rank", "name"))
        if R is not None and type(R.value) is int and adapter is not None:
            self._check_most(settings.get("ranks"), "rank", R.value, f"the rank {R.value} of {adapter.value}")
        if self.facts is None:
            return
        L = self._ask("backbone", settings.get("backbone"), self.facts.num_layers)
        domains = self._ask("data", settings.get("data"), self.facts.domains)
        self._check_size(settings.get("data", "image_size"), settings.get("backbone"))
        if L is not None:
            name = settings.at("backbone", "name").value
            self._check_most(settings.get("capacities"), "capacity", L, f"the {L} layers of {name}")
        if domains is not None:
            for key, noun in _NOUNS.items():
                self._check_length(noun, settings.get(key), settings, len(domains))
            self._check_participation(settings, len(domains))

    def _ask(self, what: str, node: Node | None, question: Callable[[dict[str, Any]], Any]) -> Any:
        if node is None or not node.is_mapping:
            return None
        core_keys = CORE_KEYS.get(what, frozenset()) - {"image_size"}
        own = {key: part for key, part in node.value.items() if key not in core_keys}
        if not all(part.is_valid for part in own.values()):
            return None
        plain = {key: part.plain() for key, part in own.items()}  # other keys of the section may be invalid
        reference = with_seed(plain, self.seed)
        key = json.dumps([what, reference], sort_keys=True)
        if key not in self._known:
            try:
                self._known[key] = question({**located(reference, self.base)} if what == "data" else reference)
            except UserError as error:
                self._known[key] = None
                instead = f"\n  without them: --data {' or --data '.join(self.overlays)}" if self.overlays else ""
                message = f"{error}{instead * isinstance(error, DataMissing)}{self._astray(reference)}"
                self.problems.add(self._blamed(node, error).mark, message)
        return self._known[key]

    def _blamed(self, node: Node, error: UserError) -> Node:
        """What is wrong in a component's section: the option that its error names, or the root that it is about."""
        root = node.get("root")
        if root is not None and root.value and str(located({"root": root.value}, self.base)["root"]) in str(error):
            return root
        return node.get(error.option) or node.at("name")

    def _astray(self, reference: dict[str, Any]) -> str:
        """Where a root lies that is looked for in the suite's folder and is in the current one."""
        root = relative_root(reference)
        if root is None or (self.base / root).exists() or not Path(root).exists():
            return ""
        there = os.path.relpath(root, self.base)
        return f"\n  a root is relative to the suite's folder; {root} of the current folder is, from there, {there}"

    def _check_size(self, size: Node | None, backbone: Node | None) -> None:
        """Report an image size that the backbone does not take."""
        facts = self.facts
        if facts is None or size is None or type(size.value) is not int:
            return
        why = self._ask(f"images of {size.value}", backbone, lambda given: facts.refuses_size(given, size.value))
        if why:
            self.problems.add(size.mark, f"data.image_size {size.value}: {why}")

    def _check_most(self, given: Node | None, noun: str, most: int, what: str) -> None:
        _, values = _given(given)
        for value in values.value if values and isinstance(values.value, list) else ():
            if type(value.value) is int and value.value > most:
                self.problems.add(value.mark, f"{noun} {value.value} is above {what}")

    def _check_length(self, noun: str, given: Node | None, settings: Node, domains: int) -> None:
        way, values = _given(given)
        if values is None or values.value is INVALID:
            return
        if way == "by_domain":
            expected, what = domains, f"the data set has {counted(domains, 'domain')}"
        elif way == "by_client" and (clients := _clients(settings, domains)):
            expected, what = clients, f"this partition makes {counted(clients, 'client')}"
        else:
            return
        if len(values.value) != expected:
            remedy = _remedy(way, len(values.value), expected, settings, domains)
            self.problems.add(values.mark, f"{counted(len(values.value), noun)} given, but {what}; {remedy}")

    def _check_participation(self, settings: Node, domains: int) -> None:
        most = {"count": _clients(settings, domains), "per_domain": _option(settings, "clients_per_domain")}
        for key, clients in most.items():
            node = settings.get("participation", key)
            if node is not None and isinstance(node.value, int) and clients and node.value > clients:
                there = counted(clients, "client")
                self.problems.add(node.mark, f"participation {key} {node.value} is above the {there} there are")


def _given(node: Node | None) -> tuple[str, Node | None]:
    """How capacities, ranks, widths or devices are given, and what is; no values where that is not said in one way."""
    items = node.value.items() if node is not None and node.is_mapping else ()
    given = [one for one in items if one[0] not in _NOT_A_WAY]
    return given[0] if len(given) == 1 else ("", None)


def _clients(settings: Node, domains: int) -> int | None:
    """How many clients the partition makes, where its options say so: `clients`, or `clients_per_domain`."""
    each = _option(settings, "clients_per_domain")
    return _option(settings, "clients") if each is None else domains * each


def _remedy(way: str, given: int, expected: int, settings: Node, domains: int) -> str:
    """What to do about so many values: give as many as there are clients or domains, or make as many clients."""
    fewer = f"give {expected} of them"
    if way == "by_domain":
        return f"{fewer}, or `by_client` one for each client"
    if _option(settings, "clients_per_domain") is None:
        return f"{fewer}, or set the partition's `clients: {given}`"
    return f"{fewer}, or set `clients_per_domain: {given // domains}`" if given and given % domains == 0 else fewer


def _option(settings: Node, key: str) -> int | None:
    """A whole number among the partition's options."""
    node = settings.get("data", "partition", key)
    return node.value if node is not None and type(node.value) is int else None
