"""Entry points of what is installed, past the packages whose metadata cannot be read."""

from __future__ import annotations

from functools import cache
from importlib.metadata import Distribution, EntryPoint, distributions


def points(group: str) -> tuple[list[EntryPoint], dict[str, str]]:
    """The entry points of a group in the order of sys.path, and what is wrong with others, by their name or place.

    Of two installations of one package the first counts, as it does for imports.
    """
    found: list[EntryPoint] = []
    unusable: dict[str, str] = {}
    seen: set[str] = set()
    for dist in distributions():
        try:
            chosen = dist.entry_points.select(group=group)
            name = _normalized(dist) if chosen else ""
        except Exception as error:  # of importlib.metadata, which trusts what is installed
            place = getattr(dist, "_path", "an unknown package")
            unusable[str(place)] = f"its metadata cannot be read: {type(error).__name__}: {error}"
            continue
        if not chosen or name in seen:
            continue
        seen.add(name)
        for point in chosen:
            if _names_module(point):
                found.append(point)
            else:
                unusable[point.name] = f"the entry point of {name!r:.80} names no module, but {point.value!r:.80}"
    return found, unusable


@cache
def named(dist: Distribution) -> tuple[str, str]:
    """(name, version); kept, because importlib.metadata reads and parses a file each time it is asked for either."""
    return dist.name, dist.version


def _normalized(dist: Distribution) -> str:
    """The name as pip compares names. Fails where the metadata, the version among them, cannot be read."""
    name, _ = named(dist)
    return str(name or getattr(dist, "_path", "")).lower().replace("-", "_").replace(".", "_")


def _names_module(point: EntryPoint) -> bool:
    matched = point.pattern.match(point.value)
    return matched is not None and all(step.isidentifier() for step in matched["module"].split("."))
