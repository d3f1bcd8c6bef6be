"""One check for any registered component: makes it with the options given, and calls the check of its kind."""

from __future__ import annotations

from functools import partial
from typing import Any

from fedbench.registry.registry import Registry
from fedbench.testing import components, methods
from fedbench.testing.world import setup_of, tiny_vit

IMAGE_SIZE = 8


def check_component(registry: Registry, kind: str, name: str, **options: Any) -> None:
    """Check the component of that kind and name. Raises AssertionError; UserError where it cannot be made."""
    ref = {"name": name, **options}
    if kind == "method":
        methods.check_method(partial(_method, registry, ref), registry)
    elif kind == "dataset":
        components.check_dataset(registry.make(kind, ref, image_size=IMAGE_SIZE))
    elif kind != "executor":  # which has no contract that a call without cells could show
        setup = setup_of(registry, tiny_vit(), [4, 3, 1]) if kind in ("objective", "aggregator") else None
        getattr(components, f"check_{kind}")(registry.make(kind, ref, setup=setup))


def _method(registry: Registry, ref: dict[str, Any], setup: Any) -> Any:
    return registry.make("method", ref, setup=setup)
