"""Where a key belongs that stands in the wrong place: among the settings, or to components that have such an option."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from fedbench.registry.catalogue import Catalogue
from fedbench.schema import keys_of, schema_of
from fedbench.suite.keys import Settings
from fedbench.types import SIZES
from fedbench.words import nearest, shortened, shown

# Where components are named whose options may be looked for elsewhere: kind -> dotted path.
PLACES = {
    "adapter": "adapter",
    "dataset": "data",
    "partition": "data.partition",
    "backbone": "backbone",
    "method": "methods",
}
WHOLE = (*SIZES, "participation", "proxy", "devices", "fit", "device_scale")  # whose keys mean nothing elsewhere
MOST = 3  # components that are named


@cache
def schema(shape: Any) -> dict[str, Any]:
    """The JSON Schema of a typed dictionary of `keys`."""
    return schema_of(shape)


@cache
def homes() -> list[str]:
    """Every dotted key of the settings."""
    found: list[str] = []
    paths: list[tuple[str, ...]] = [()]
    for path in paths:  # which grows meanwhile
        keys = [(*path, key) for key in keys_of(schema(Settings), path)]
        found += [".".join(key) for key in keys if key[-1] != "name" or key[0] == "train"]
        paths += [key for key in keys if key[-1] not in WHOLE]
    return found


def belongs(key: str, catalogue: Catalogue | None, known: Iterable[str] = ()) -> str:
    """`; it belongs to adapter (an option of lora)`: nothing where no place is known for the key, or it is one of
    `known`, which is what there is in its own place."""
    if key in known:
        return ""
    home = next((home for home in homes() if home.split(".")[-1] == key), None)
    places = [] if home is None else [home.rpartition(".")[0] or "the settings, under defaults or a scenario"]
    for kind, place in PLACES.items() if catalogue else ():
        having = (
            [name for name, found in catalogue.components[kind].items() if key in found.options] if catalogue else []
        )
        if having:
            places.append(f"{place} (an option of {shortened(having, MOST)})")
    return f"; it belongs to {' or '.join(places)}" if places else ""


def near_home(key: str) -> str:
    """`; did you mean "train.local_epochs"?`, where a key of the settings is near, wherever it stands."""
    places = {home.split(".")[-1]: home for home in reversed(homes())}
    near = nearest(key, places) if len(key) > 2 else []  # of two letters, every other name has one
    return f"; did you mean {shown(places[near[0]])}?" if near else ""
