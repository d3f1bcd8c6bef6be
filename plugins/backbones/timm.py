"""Any model of timm by its name, with its own weights, none, or those of a file."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench import hookimpl
from fedbench.disk import expanded, hash_of_file, remembered
from fedbench.errors import UnknownName, UserError
from fedbench.machine import package_version
from fedbench.words import nearest

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.models.backbone import Architecture, Source

# Options of timm.create_model by which a suite could name files of other formats, pickles among them.
REFUSED = ("cache_dir", "checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay")


def timm_model(name: str, pretrained: bool | str = True, load: bool = True, **options) -> Source:
    """timm's model of that name: `vit_base_patch16_224`, `mixer_b16_224`, `resnet50_gn`, with a tag (`.augreg_in21k`)
    if wanted.

    pretrained: true fetches timm's weights, false draws them from the run's seed, a path loads a .safetensors
    file, resampled as timm does where it was saved at another image size. Further options go to timm.create_model
    (`img_size: 96`).
    """
    refuse(name)
    import timm

    from fedbench.models.backbone import Architecture, Source

    if odd := sorted(options.keys() & set(REFUSED)):
        raise UserError(
            f"{name}: the option {odd[0]} is not for suites; weights of your own: `pretrained: file.safetensors`"
        )
    if load and pretrained is True:
        _be_offline_as_asked()
    try:
        model: Any = timm.create_model(name, pretrained=load and pretrained is True, num_classes=0, **options)
    except Exception as error:  # timm and the hub client raise many kinds; the cause is kept
        raise UserError(_cannot_make(name, pretrained, error)) from error
    fingerprint = f"timm:{name}:drawn"
    if pretrained is True:
        fingerprint = f"timm:{name.split('.')[0]}.{model.pretrained_cfg.get('tag') or 'default'}"
    elif pretrained:
        fingerprint = load_file(model, expanded(pretrained), load, Architecture(name, options))
    config = model.pretrained_cfg
    size = options.get("img_size", config.get("input_size", (3, 224, 224))[1])
    return Source(model, size, tuple(config["mean"]), tuple(config["std"]), fingerprint, Architecture(name, options))


def _be_offline_as_asked() -> None:
    """Have the client of the Hub read HF_HUB_OFFLINE once more: it was imported before this worker was given that."""
    with suppress(ImportError):
        from huggingface_hub import constants

        constants.HF_HUB_OFFLINE = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def refuse(name: str) -> None:
    """Raises UnknownName where timm has no model of that name, which is known without importing it, in seconds, once it
    was asked for all of them."""
    base, names = name.split(".")[0], remembered("timm names", _stamp(), _names)
    if base not in names["all"]:
        raise UnknownName(f"no backbone is called {name!r}", nearest(base, names["offered"], 3))


timm_model.refuse = refuse  # type: ignore[attr-defined]  # asked before torch is imported


def _names() -> dict[str, list[str]]:
    """All names that timm knows, those included that it has given up, and those that are offered for misspelt ones."""
    import timm

    known = {name for name in dir(timm.models) if timm.is_model(name)}
    offered = timm.list_models(["vit_*", "deit*", "mixer_*", "resnet*gn"])
    return {"all": sorted(known.union(timm.list_models())), "offered": offered}


def _stamp() -> list[Any]:
    """What changes when timm does, also where somebody works on it."""
    found = importlib.util.find_spec("timm")
    files = Path(found.origin).parent.glob("models/*.py") if found and found.origin else ()
    return [package_version("timm"), sorted([file.name, file.stat().st_mtime_ns] for file in files)]


def load_file(model, path: Path, load: bool, architecture: Architecture) -> str:
    """Load a .safetensors file of timm's names into a model without classifier; returns the file's fingerprint.

    With load=False the model, whose weights may be shapes alone, is left as it is.
    """
    import torch
    from safetensors.torch import load_file as read

    if not path.is_file():
        raise UserError(f"pretrained: there is no file {path}; give true, false or the path of a .safetensors file")
    try:
        with torch.device("cpu"):  # where only shapes are asked for, older safetensors would read shapes alone
            saved = read(path)
    except Exception as error:
        raise UserError(f"pretrained: {path} is no readable .safetensors file ({error})") from error
    wanted = model.state_dict()
    missing = sorted(wanted.keys() - saved.keys())
    tensors: Mapping[str, Tensor] = {key: saved[key] for key in wanted if key in saved}
    odd = sorted(key for key in tensors if wanted[key].shape != tensors[key].shape)
    if odd and not missing and (resampled := _resampled(tensors, architecture)):
        tensors, odd = resampled, []
    if missing or odd:
        what = f"lacks {', '.join(missing[:3])}" if missing else f"has another shape for {', '.join(odd[:3])}"
        raise UserError(f"pretrained: {path} does not fit {type(model).__name__}: it {what}")
    if load:
        model.load_state_dict({key: tensor.to(wanted[key].dtype) for key, tensor in tensors.items()})
    return "sha256:" + hash_of_file(path)


def _resampled(tensors: Mapping[str, Tensor], architecture: Architecture) -> Mapping[str, Tensor]:
    """The weights as timm's own loader takes them into a model of another image size or patch size, each architecture
    in its own way; nothing where it cannot."""
    import timm
    import torch

    given: dict[str, Any] = {"pretrained": True, "pretrained_cfg_overlay": {"state_dict": dict(tensors)}}
    try:
        with torch.device("cpu"):  # where only shapes are asked for, the default device is another
            return timm.create_model(architecture.name, num_classes=0, **given, **architecture.args).state_dict()
    except Exception:  # whatever a loader does with shapes that it was not written for
        return {}


def _cannot_make(name: str, pretrained: bool | str, error: Exception) -> str:
    import timm

    if pretrained is not True:
        return f"timm cannot make {name!r}: {error}"
    config = timm.get_pretrained_cfg(name)
    repository = config.hf_hub_id if config else None
    wanted = f"model.safetensors of the hub repository {repository}" if repository else f"the weights of {name}"
    return (
        f"the weights of backbone {name!r} cannot be fetched: {str(error).splitlines()[0]}. Wanted: {wanted}. "
        f"Fetch that file on a machine with access and set `pretrained: path/to/model.safetensors`; "
        f"or set `pretrained: false` for random weights"
    )


@hookimpl
def fedbench_register_backbones(register):
    register("timm", timm_model)
