"""An installable package of one component, and a suite that sets it beside what is built in."""

from __future__ import annotations

import functools
import keyword
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

from fedbench.errors import UserError
from fedbench.scaffold import SCHEMA, filled, knowing


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
    told = tomllib.loads((Path(str(files("fedbench.scaffold"))) / "package/kinds.toml").read_text("utf-8"))
    return {kind: Begun(**words) for kind, words in told.items()}


LIKE = re.compile(r"[a-z][a-z0-9_]*")


def package(kind: str, name: str) -> dict[Path, bytes]:
    """The files of a package with a component of that kind and name, by their places. Raises UserError."""
    if not LIKE.fullmatch(name) or keyword.iskeyword(name):
        raise UserError(f"{name!r} cannot be the name of a function: lower-case letters, digits and _, a letter first")
    begun = asdict(kinds()[kind])
    sweep = f"sweep:\n  {begun['sweep']}\n\n" if begun["sweep"] else ""
    article = "an" if kind[0] in "aeo" else "a"
    words = {
        **{key.upper(): text for key, text in begun.items()},
        "METHODS": f"[{begun['methods']}]",
        "METRICS": f"[{begun['metrics']}]",
        "SWEEP": sweep,
        "KIND": f"{article} {kind}",
        "KEY": kind,
        "MODULE": f"fedbench_{name}",
        "DIST": f"fedbench-{name.replace('_', '-')}",
        "VARIABLE": f"{name.upper()}_FILE",
        "NAME": name,  # last, as the others have it in them
    }
    made = {**filled("package/common", words), **filled(f"package/{kind}", words)}
    return {**made, Path(SCHEMA): knowing(kind, name)}
