"""The card of an export (config.json), and the Python that loads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedbench import __version__
from fedbench.errors import UserError
from fedbench.export.parts import Parts, adapters_of
from fedbench.models.backbone import Architecture
from fedbench.results import Result
from fedbench.results.scores import average, by_domain
from fedbench.simulation.batches import NORMALIZE
from fedbench.simulation.simulation import Simulation
from fedbench.types import NEXT_TOKEN


def card(
    form: str, simulation: Simulation, parts: Parts, architecture: Architecture | None, results: Sequence[Result]
) -> dict:
    """config.json: the library's own fields, then the adapters, the classifiers, and where all this is from.

    architecture: of the merged model; else of the backbone, None where that is not known.
    """
    described = _of_texts(form, simulation, parts) if parts.texts else _of_images(simulation, parts, architecture)
    if form != "merged":
        targets, one = adapters_of(parts, form)
        described["layers"] = list(parts.layers)
        described["adapter"] = {"rank": one.rank, "alpha": one.alpha, "dropout": one.dropout, "targets": targets}
    if len(parts.model.exits) > 1:
        described["exits"] = {exit.classifier: exit.depth for exit in parts.model.exits}
    described["fedbench"] = _origin(form, simulation, parts, results)
    return described


def _of_images(simulation: Simulation, parts: Parts, architecture: Architecture | None) -> dict[str, Any]:
    source, data = simulation.source, simulation.config["data"]
    mean, std = NORMALIZE.get(data["normalize"], (source.mean, source.std))
    return {
        "architecture": architecture and architecture.name,
        "num_classes": parts.num_classes,
        "model_args": dict(architecture.args) if architecture else {},
        **({"first_blocks": architecture.layers} if architecture and architecture.layers is not None else {}),
        "pretrained_cfg": {
            "input_size": [3, parts.image_size, parts.image_size],
            "mean": list(mean),
            "std": list(std),
            "num_classes": parts.num_classes,
            "classifier": parts.heads[0] if len(parts.heads) == 1 else list(parts.heads),
            "label_names": list(simulation.dataset.classes),
        },
    }


def _of_texts(form: str, simulation: Simulation, parts: Parts) -> dict[str, Any]:
    """A merged model's begins with the fields of `transformers`, which makes the model by them."""
    assert parts.texts is not None
    return {
        **(parts.texts.config(parts.layers) if form == "merged" else {}),
        **_answers(simulation, parts),
        "max_length": parts.texts.max_length,
    }


def _answers(simulation: Simulation, parts: Parts) -> dict[str, Any]:
    """What a model of texts answers with."""
    if parts.model.blocks.predicts_tokens:
        return {"task": NEXT_TOKEN}
    assert parts.texts is not None  # it is asked of such models alone
    pooling = getattr(parts.texts.root, "pooling", None)
    labels = list(simulation.dataset.classes)
    return {"num_classes": parts.num_classes, "label_names": labels, "pooling": pooling}


def _origin(form: str, simulation: Simulation, parts: Parts, results: Sequence[Result]) -> dict[str, Any]:
    """The cell, its names, and what its model scored after the last round."""
    manifest, config = results[0].manifest, simulation.config
    names = ("scenario", "method", "variant", "seed")
    first, last = results[0], simulation.rounds
    scores = {metric: first.scores(metric)[last] for metric in first.metrics("test")}
    return {
        "version": __version__,
        "format": form,
        "cell": manifest["id"],
        "names": [{"suite": r.suite} | {name: getattr(r.entry, name) for name in names} for r in results],
        "method": config["method"],
        "backbone": config["backbone"],
        "fingerprints": manifest["fingerprints"],
        "rounds": simulation.rounds,
        "scores": {metric: {"average": average(by), "domains": by_domain(by)} for metric, by in scores.items()},
        "note": note(parts),
    }


def note(parts: Parts) -> str | None:
    """What the written model is not, where the method answers with more than one classifier."""
    if len(parts.model.exits) == 1:
        return None
    names = ", ".join(exit.classifier for exit in parts.model.exits)
    if parts.model.blocks.predicts_tokens:
        return f"The method answers with several exits ({names}). The model written has the deepest of them alone."
    return (
        f"The method answers with several classifiers ({names}). The model written answers with the deepest of them "
        f"alone, {parts.model.last.classifier}; all are in exits.safetensors."
    )


def made(architecture: Architecture, num_classes: int, *, pretrained: bool = False) -> str:
    """The lines that make timm's model."""
    options = {"pretrained": True} if pretrained else {}
    given = ", ".join(f"{k}={v!r}" for k, v in {**options, "num_classes": num_classes, **architecture.args}.items())
    module, _, name = architecture.name.rpartition(":")
    if module:
        lines = f"from {module} import {name}\nmodel = {name}({given}).eval()"
    else:
        lines = f"import timm\nmodel = timm.create_model({name!r}, {given}).eval()"
    return lines if architecture.layers is None else f"{lines}\n{first_blocks(architecture.layers)}"


def first_blocks(layers: int) -> str:
    """The line that leaves a model its first layers."""
    return f"model.blocks = model.blocks[:{layers}]"


def base(simulation: Simulation, parts: Parts, form: str, files: Sequence[str]) -> str:
    """The lines that make the pre-trained backbone which adapters are put onto. Raises UserError where nobody else
    has its weights."""
    backbone: Mapping[str, Any] = simulation.config["backbone"]
    if backbone.get("pretrained") is False:
        raise UserError(
            f"--format {form}: the backbone's weights were drawn at random, and adapters are of no use without them; "
            "--format merged writes both"
        )
    if parts.texts:
        return parts.texts.base(parts.layers, parts.num_classes, parts.classifier.in_features)
    known = simulation.source.architecture
    if backbone.get("pretrained") is True and known and ":" not in known.name:
        lines = made(known, parts.num_classes, pretrained=True)
    else:
        given = repr(list(files)) if files else ""
        lines = (
            "from fedbench.registry.registry import Registry\n"
            f'model = Registry({given}).make("backbone", {dict(backbone)!r}).model.eval()\n'
            f"model.reset_classifier({parts.num_classes})"
        )
    if parts.whole:
        return lines
    if parts.layers == list(range(len(parts.layers))):
        return f"{lines}\n{first_blocks(len(parts.layers))}"
    return f"import torch\n{lines}\nmodel.blocks = torch.nn.Sequential(*[model.blocks[j] for j in {parts.layers}])"
