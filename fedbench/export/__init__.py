"""Models of finished cells, written for other libraries: PEFT, loralib, timm or transformers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn

from fedbench.disk import cannot_write, put_in_place
from fedbench.errors import UserError
from fedbench.export import decoders, loralib, merged, peft
from fedbench.export.card import base, card, made, note
from fedbench.export.parts import Parts, check_adapters, parts_of
from fedbench.export.texts import PlainText, TextBackbone
from fedbench.models.backbone import Architecture
from fedbench.models.globalmodel import GlobalModel
from fedbench.registry.registry import Registry
from fedbench.results import load
from fedbench.simulation.saved_model import reopen
from fedbench.simulation.simulation import Simulation

__all__ = ["FORMATS", "Export", "export"]

FORMATS = {"peft": peft, "loralib": loralib, "merged": merged}
CONFIG, EXITS = "config.json", "exits.safetensors"
WRITTEN = {CONFIG, EXITS, *peft.FILES, loralib.FILE, merged.FILE}


@dataclass(frozen=True)
class Export:
    """What was written: the folder, the bytes of each file, the Python that loads it, and what it is not."""

    folder: Path
    files: Mapping[str, int]
    loading: str
    note: str | None


def export(cell: str | Path, form: str, out: str | Path, registry: Registry, force: bool = False) -> Export:
    """Write the model of a finished cell into the folder `out`, for `form`, one of FORMATS.

    The cell's images are not needed. force: replace an earlier export. Raises UserError where the cell has no
    model, where the format cannot hold it, or where `out` is taken, be it by another export at the same time.
    """
    out = Path(out)
    _must_be_free(out, force)
    simulation, model = reopen(cell, registry, images=False)
    if not isinstance(model, GlobalModel):
        method = simulation.config["method"]["name"]
        raise UserError(
            f"{cell}: {method!r} cannot be exported: its predictor does not answer with a GlobalModel, a backbone with "
            "adapters and a head, as those of depth-allocated methods and of unequal ranks do"
        )
    parts = parts_of(model, simulation.evaluation.test.size, _texts(simulation, registry))
    with _put_in_place(out, force) as folder:
        decodes = model.blocks.predicts_tokens
        if decodes:
            architecture, making = None, decoders.write(folder, out, form, parts)
        else:
            architecture, making = _written(folder, out, form, simulation, parts, registry)
        if len(model.exits) > 1 and not decodes:
            save_file(parts.exits(), folder / EXITS)
        config = card(form, simulation, parts, architecture, load([cell]))
        (folder / CONFIG).write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    files = {path.name: path.stat().st_size for path in sorted(out.iterdir())}
    if decodes:
        return Export(out, files, making, note(parts))
    loading = f"{making}\n{FORMATS[form].LOAD.format(folder=str(out))}"
    return Export(out, files, f"{loading}\n{parts.texts.asking()}" if parts.texts else loading, note(parts))


def _written(
    folder: Path, out: Path, form: str, simulation: Simulation, parts: Parts, registry: Registry
) -> tuple[Architecture | None, str]:
    """Write the tensors and load them back; returns how timm makes the model they go into, where known, and the lines
    that make it. Raises UserError where the model loaded back answers otherwise than the cell's."""
    if form == "merged" and parts.texts:
        return None, _whole_of_texts(folder, out, parts, parts.texts)
    if form == "merged":
        architecture = merged.architecture_of(parts, simulation.source)
        merged.write(folder, parts, architecture)
        return architecture, made(architecture, parts.num_classes)
    making = base(simulation, parts, form, [str(file) for file in registry.files.values()])
    adapters = {"peft": peft, "loralib": loralib}[form]
    adapters.write(folder, parts)
    if parts.texts:
        bare = parts.texts.model(parts.layers, parts.num_classes, parts.classifier.in_features)
    else:
        bare = _backbone(simulation, parts, registry)
    check_adapters(form, bare, parts, *adapters.read(folder, parts))
    return simulation.source.architecture, making


def _texts(simulation: Simulation, registry: Registry) -> TextBackbone | None:
    """The cell's backbone, where it reads texts."""
    source, config = simulation.source, simulation.config
    if source.tokenizer is None:
        return None
    most = config["data"].get("max_length") or source.image_size
    return TextBackbone(simulation.model.model, source.tokenizer, config["backbone"], most, registry)


def _whole_of_texts(folder: Path, out: Path, parts: Parts, texts: TextBackbone) -> str:
    """Write a merged model of texts; returns the lines that make the model it goes into."""
    if config := texts.config(parts.layers):
        (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")  # the card takes its place
    features = parts.classifier.in_features
    kind = texts.pretrained.kind if texts.pretrained else type(texts.root).__name__
    merged.write(
        folder, parts, PlainText(kind, lambda classes: texts.whole_model(str(folder), parts.layers, classes, features))
    )
    return texts.whole(str(out), parts.layers, parts.num_classes, features)


def _backbone(simulation: Simulation, parts: Parts, registry: Registry) -> nn.Module:
    """The pre-trained backbone with a classifier, of the cell's layers alone: what the lines of `base` make."""
    model: Any = registry.make("backbone", dict(simulation.config["backbone"])).model.eval()
    model.reset_classifier(parts.num_classes)
    if not parts.whole:
        model.blocks = nn.Sequential(*[model.blocks[j] for j in parts.layers])
    return cast(nn.Module, model)


def _must_be_free(out: Path, force: bool) -> None:
    """Nothing may stand at `out`; with force an earlier export may, and no other file in it."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not _is_export(out):
        raise UserError(
            f"{out}: holds something that is no export of fedbench. Choose another folder with --output DIR."
        )
    if not force:
        raise UserError(f"{out}: there is an export already. Replace it with --force, or choose another --output DIR.")
    if foreign := sorted({path.name for path in out.iterdir()} - WRITTEN):
        raise UserError(
            f"{out}: next to an export there is {', '.join(foreign)}, which --force would remove. Move it elsewhere, "
            "or choose another --output DIR."
        )


def _is_export(out: Path) -> bool:
    try:
        return "fedbench" in json.loads((out / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


@contextmanager
def _put_in_place(out: Path, force: bool) -> Iterator[Path]:
    """A hidden folder next to `out` that takes its place when all is written, and goes when something fails.

    What came to `out` in the meantime is not replaced: the last rename fails where anything stands there.
    """
    out = out.resolve()
    draft, old = (out.parent / f".{out.name}.{secrets.token_hex(8)}.tmp" for _ in range(2))
    try:
        with put_in_place(out, draft, old if force else None):
            yield draft
            _must_be_free(out, force)
    except SafetensorError as error:  # its way of saying that a disk is full
        raise UserError(f"{out}: cannot be written ({error}). Try another --output DIR.") from error
    except OSError as error:
        raise cannot_write(out, error, "Try another --output DIR.") from error
