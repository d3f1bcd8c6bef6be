"""Plugins that do not load, entry points that are none, and what the cache folder holds after somebody was there."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from random import Random

import numpy as np

from fedbench.data.cache import cached
from fedbench.data.image_files import content_hashes
from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry
from fedbench.types import Images, Splits
from fuzz.mutants import TEXTS, damaged, rewritten

GOOD = '''\
from fedbench import hookimpl


def mine(width: int = 3, deep: dict | None = None):
    """An aggregator."""
    return width


@hookimpl
def fedbench_register_aggregators(register):
    register("mine", mine)
'''
LINES = (
    """
raise ValueError("x"); raise SystemExit(3); raise SystemExit; import sys, sys.exit("no"); import nowhere_to_be_found; 1 / 0; print("x"); (; def f(; \x00
@hookimpl; def fedbench_register_nothing(register): pass; class E(BaseException): pass; raise BaseException("x"); raise GeneratorExit
raise RecursionError; raise MemoryError; raise UnicodeDecodeError("a", b"", 0, 1, "x"); raise StopIteration; assert False; import sys; sys.exit()
register = None; del mine; mine = 3; mine = lambda *a: 1; mine = lambda **k: 1; mine = lambda x=object(): 1; mine = lambda x={1}: 1
mine = print; mine = type; mine.__doc__ = 3; mine.__doc__ = "\\ud800"; mine.__signature__ = 3; a = []; a.append(a); mine.__defaults__ = (a, a)
fedbench_cell_started = 3; fedbench_run = 1; __name__ = 3; __file__ = None; import sys; sys.modules.pop(__name__); def fedbench_round_finished(nothing): pass
mine.__defaults__ = (float("nan"), 10**400); mine.__defaults__ = (10**5000, None)
""".strip()
    .replace("\n", "; ")
    .split("; ")
)
CALLS = (
    """
register("mine", mine, profiles={"paper": {"x": object()}}); register("mine", mine, profiles=3); register("mine", mine, nothing=3)
register(3, mine); register(None, mine); register([], mine); register("", mine); register("../x", mine); register("\\ud800", mine)
register("mine", None); register("mine"); register(); raise ValueError; raise SystemExit; register("mine", mine, source=3)
register("mine", mine, source="x"); register("mine", mine, exact=None); register("mine", mine, profiles={1: {(2, 3): 4}})
register("weighted_mean", mine); register("mine", mine); register("mine", mine, open=5); register("mine", mine, summary=5); return 3
register("mine", mine, profiles={"paper": float("nan")}); raise BaseException; raise GeneratorExit; register("mine", mine, kind=3)
""".strip()
    .replace("\n", "; ")
    .split("; ")
)
VALUES = [
    "",
    ":",
    ".",
    "..",
    "odd:",
    ":x",
    "odd.",
    "os.path:join",
    "this is no module",
    "odd-1",
    "nowhere",
    "json",
    "a.b.c",
]
VALUES += [
    "odd",
    "odd",
    "odd",
    "odd:x [y]",
    "odd [",
    "fedbench",
    "__main__",
    "odd..x",
    "sys",
    "é",
    "odd.x.y",
    "x" * 300,
]


class Installed:
    def __init__(self, shared: Path) -> None:
        self.shared = shared
        with _cache_at(shared / "cache"):  # torch and timm are imported before the clock runs
            self._use_cache(shared)

    def attack(self, inside: Path, chance: Random) -> None:
        chance.choice([self._plugin_file] * 4 + [self._installed] * 3 + [self._cache])(inside, chance)

    def _plugin_file(self, inside: Path, chance: Random) -> None:
        names = ["p.py", "p.txt", "p", ".py", "p.so", "é.py", "a b.py", "json.py", "p.pyc"]
        file = inside / chance.choice(names)
        file.write_bytes(_source(chance))
        asked = chance.choice([file] * 8 + [inside, inside / "nowhere.py", "\0", "x" * 5000, ""])
        with _cache_at(self.shared / "cache"):
            _used(Registry([str(asked)]))

    def _installed(self, inside: Path, chance: Random) -> None:
        """A package whose metadata say what they like."""
        (inside / "odd.py").write_bytes(_source(chance))
        name, value = chance.choice(["odd", "odd", "lora", *TEXTS]), chance.choice(VALUES)
        text = f"[fedbench]\n{name} = {value}\n".encode("utf-8", "replace")
        info = inside / chance.choice(["odd-1.0.dist-info", "odd.dist-info", "-.dist-info", "odd.egg-info"])
        info.mkdir()
        (info / "entry_points.txt").write_bytes(damaged(text, chance) if chance.random() < 0.3 else text)
        metadata = b"Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n"
        if chance.random() < 0.7:
            (info / "METADATA").write_bytes(damaged(metadata, chance) if chance.random() < 0.3 else metadata)
        with _on_path(inside), _cache_at(inside / "cache"):
            _used(Registry())

    def _cache(self, inside: Path, chance: Random) -> None:
        """What fedbench keeps for itself, after somebody has changed it."""
        with _cache_at(inside / "cache"):
            self._use_cache(inside)
            files = sorted(file for file in (inside / "cache").rglob("*") if file.is_file() and file.suffix != ".lock")
            file = chance.choice(files)
            harm = rewritten if file.suffix == ".json" and chance.random() < 0.8 else damaged
            file.write_bytes(harm(file.read_bytes(), chance))
            self._use_cache(inside)

    def _use_cache(self, inside: Path) -> None:
        registry = Registry()
        _used(registry)
        assets = Assets(registry)
        assert assets.num_layers({"name": "micro_vit", "pretrained": False}) > 0
        images = Images(np.zeros((2, 3, 4, 4), np.uint8), np.zeros(2, np.int64), np.zeros(2, np.int64))
        splits = cached("x", lambda new_array: Splits(images, images))
        assert splits.train.x.shape == (2, 3, 4, 4) and splits.train.y.tolist() == [0, 0]
        (inside / "a").write_text("a")
        os.utime(inside / "a", (1, 1))
        assert content_hashes(inside, ["a"])["a"].startswith("ca978112ca1bbdca")


def _source(chance: Random) -> bytes:
    head, _, call = GOOD.rpartition("    ")
    lines = [chance.choice(LINES)] if chance.random() < 0.6 else []
    parts = head.split("@hookimpl")
    text = parts[0] + "\n".join(lines) + "\n\n@hookimpl" + parts[1]
    text += "    " + (chance.choice(CALLS) if chance.random() < 0.6 else call)
    raw = text.encode("utf-8", "surrogatepass")
    return damaged(raw, chance) if chance.random() < 0.2 else raw


def _used(registry: Registry) -> None:
    """As the commands use a registry: the catalogue, its names, its hooks, a component and its version."""
    for component in registry.catalogue:
        assert registry.package(component.plugin)
    with redirect_stdout(StringIO()):
        registry.tell("fedbench_suite_started", suite="x", cells=[])
    if "mine" in registry.catalogue.components["aggregator"]:
        registry.component("aggregator", {"name": "mine"})
        registry.version(registry.catalogue.find("aggregator", "mine").plugin)
    registry.catalogue.unknown("aggregator", "mine2")


@contextmanager
def _cache_at(folder: Path) -> Iterator[None]:
    before = os.environ.get("FEDBENCH_CACHE")
    os.environ["FEDBENCH_CACHE"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("FEDBENCH_CACHE") if before is None else os.environ.update(FEDBENCH_CACHE=before)


@contextmanager
def _on_path(folder: Path) -> Iterator[None]:
    modules = dict(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in sys.modules.keys() - modules.keys():
            del sys.modules[name]
        sys.modules.update(modules)
