"""fedbench: benchmark federated fine-tuning when clients are unequal."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pluggy

__version__ = "0.3.0"

hookimpl = pluggy.HookimplMarker("fedbench")

# Public names that need torch, pandas or the file formats are imported when first asked for: the command line
# starts at once.
_LAZY = {
    "load": "fedbench.api",
    "run": "fedbench.api",
    "load_results": "fedbench.results",
    "Method": "fedbench.method",
    "layerwise": "fedbench.families.layerwise",
    "generator": "fedbench.seeding",
    "UserError": "fedbench.errors",
    "NotApplicable": "fedbench.errors",
}

__all__ = ["__version__", "hookimpl", *_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'fedbench' has no attribute {name!r}")
    module = import_module(_LAZY[name])
    return module if name == "layerwise" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
