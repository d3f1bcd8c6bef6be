"""Facts about backbones and data, and third-party plugins read in a child process."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fedbench
from fedbench import errors
from fedbench.data.checked import doubts
from fedbench.data.heldout import dealt, proxy_of
from fedbench.data.sources import located
from fedbench.disk import expanded, remembered
from fedbench.errors import Broke, UnknownName, UserError, summary_of, text_of
from fedbench.machine import package_version
from fedbench.processes import supervisor
from fedbench.registry.registry import Registry, dataset_of, dataset_ref
from fedbench.types import CLASSIFICATION, NEXT_TOKEN, SIZES, Dataset, Splits
from fedbench.words import counted, nearest

if TYPE_CHECKING:
    from fedbench.models.backbone import Source

Ref = Mapping[str, Any]
LANGUAGE = re.compile(
    r"bert|gpt|llama|qwen|mistral|gemma|t5|opt-|phi-|lm\d*-|electra", re.IGNORECASE
)  # in models' names
LIBRARIES = ("torch", "timm", "transformers", "tokenizers")
MOST_FILES = 2000  # of a folder that are looked at
ASKING = 120.0  # seconds that a third-party backbone or data set may take to give its facts
DECODING = 3600.0  # seconds that a third-party data set may take to be decoded, and its images to be dealt to clients


class CachedFacts:
    """Facts about backbones and data, kept in the cache folder under a hash of all they depend on.

    Facts of third-party components are computed in a child process with a deadline, unless this one is a worker.
    """

    def __init__(
        self,
        registry: Registry,
        base: str | Path = "",
        *,
        in_place: bool = False,
    ) -> None:
        """Args:
        registry: what is installed.
        base: of `located`; the current folder if not given.
        in_place: whether this process may call third-party components, as it may where its registry says so.
        """
        self.registry, self.base = registry, base
        self.in_place = in_place or registry.in_place
        self._datasets: dict[str, dict[int, Dataset]] = {}  # by what makes them, and by image size
        self._sources: dict[str, Source] = {}
        self._backbones: dict[str, dict[str, Any]] = {}  # and what weights are at their paths
        self._stamps: dict[str, Any] = {}

    def num_layers(self, backbone: Ref) -> int:
        """L of a backbone. 1 where it cannot be cut into layers. Raises UserError where it does not exist."""
        return self.backbone(backbone)["num_layers"]

    def domains(self, data: Ref) -> tuple[str, ...]:
        """The domains of a data set. Raises UserError where it is not there."""
        at_any_size = next(iter(self._sizes(located(data, self.base)).values()), None)
        return (at_any_size or self.dataset(data, 32)).domains

    def backbone(self, ref: Ref) -> dict[str, Any]:
        """num_layers, image_size, the weights' fingerprint and whether it reads texts, or predicts their tokens.

        No weights are read where the plugin can do without. Computed again once a file has changed that its options
        name.
        """

        def compute() -> dict[str, Any]:
            if self._is_foreign("backbone", ref):
                return dict(self._asked("backbone", [dict(ref)], ("backbone", ref)))
            source = self.source(ref)  # first, for it may refuse the name before torch is imported
            from fedbench.models.backbone import body_of

            layers = body_of(source.model, image_size=source.image_size).num_layers
            facts = {"num_layers": layers, "image_size": source.image_size, "fingerprint": source.fingerprint}
            decodes = hasattr(type(source.model), "open_head")
            return {**facts, "texts": source.tokenizer is not None, "decodes": decodes}

        named = _with_files(ref)
        key = json.dumps(named, sort_keys=True)
        if key not in self._backbones:
            self._backbones[key] = remembered("backbone", [named, self.stamp("backbone", ref)], compute)
        return dict(self._backbones[key])

    def refuses_size(self, ref: Ref, size: int) -> str:
        """Why a backbone does not take images of so many pixels a side; "" where it does, or where shapes cannot tell.
        Raises UserError where it does not exist."""

        def compute() -> str:
            if self._is_foreign("backbone", ref):
                return str(self._asked("refuses_size", [dict(ref), size], ("backbone", ref)))
            import torch

            model, own = self.source(ref).model.eval(), self.backbone(ref)["image_size"]
            for side in (own, size):  # a model that takes no shapes at all is left to those who run it
                try:
                    with torch.no_grad():
                        model(torch.empty(1, 3, side, side, device="meta"))
                except Exception as error:
                    return "" if side == own else f"{ref['name']} takes images of {own} pixels a side ({error})"
            return ""

        if size == self.backbone(ref)["image_size"]:
            return ""
        return remembered("image size", [_with_files(ref), size, self.stamp("backbone", ref)], compute)

    def source(self, ref: Ref) -> Source:
        """A copy of the shapes of a backbone, without its weights."""
        key = json.dumps(_with_files(ref), sort_keys=True)
        if key not in self._sources:
            try:
                with self.registry.blaming("backbone", ref["name"]):
                    self._sources[key] = self._shapes(ref)
            except UnknownName as error:  # it was left to timm, which knows nothing of the others
                ours = [name for name in self.registry.catalogue.components["backbone"] if name != "timm"]
                near = [*nearest(ref["name"], ours), *error.near]
                others = "" if near else f"; there are {', '.join(sorted(ours))}, and timm's"
                if not near and LANGUAGE.search(ref["name"]):
                    others = f"; a language model reads texts: `{{name: hf, model: {ref['name']}}}`, with data of texts"
                raise UnknownName(error.message + others, near) from None
        source = self._sources[key]
        from fedbench.models.backbone import copy_of  # here, so that lists import no torch

        return dataclasses.replace(source, model=copy_of(source.model))

    def _shapes(self, ref: Ref) -> Source:
        """Made by its plugin, which may `refuse` a name before torch is imported."""
        maker, _ = self.registry.component("backbone", ref)
        if refuse := getattr(maker, "refuse", None):
            refuse(ref["name"])
        import torch

        with torch.device("meta"):
            source: Source = self.registry.make("backbone", dict(ref), load=False)
        return source

    def dataset(self, data: Ref, image_size: int) -> Dataset:
        """The data set of a `data` section, loaded once, however it is dealt to clients; its own image size wins over
        the backbone's. Of a third-party one the images are read by workers alone."""
        given, data = data, located(data, self.base)
        sizes, size = self._sizes(data), data.get("image_size") or image_size
        if size not in sizes and self._is_foreign("dataset", data):
            facts = self._asked("dataset_facts", [dict(given), image_size], ("dataset", data))
            sizes[size] = Dataset(
                tuple(facts["domains"]),
                tuple(facts["classes"]),
                facts["fingerprint"],
                _unread,
                texts=facts["texts"],
                task=facts["task"],
            )
        elif size not in sizes:
            with self.registry.blaming("dataset", data["name"]):
                found = dataset_of(data, self.registry, image_size)
                sizes[size] = dataclasses.replace(found, load=functools.cache(found.load))
        return sizes[size]

    def outline(self, config: Mapping[str, Any]) -> Dataset:
        """The data set of a cell for a plan: without pixels where it has an outline, and with the length of its longest
        texts, which the tokenizer is asked for once. Raises UserError."""
        backbone = self.backbone(config["backbone"])
        dataset = self.dataset(config["data"], backbone["image_size"])
        if not (dataset.texts and backbone["texts"]):
            return dataset.outlined
        most, splits = config["data"].get("max_length") or backbone["image_size"], dataset.load()
        halves: Any = (splits.train, splits.test)

        def compute() -> list[int]:
            from fedbench.models.layered import tokenized  # here, so that lists import no torch

            tokenizer: Any = self.source(config["backbone"]).tokenizer
            if dataset.task == NEXT_TOKEN:
                from fedbench.models.tokens import encoded, fits

                kept = [half.at(fits(tokenizer, half, most).nonzero()[0]) for half in halves]
                found = ((len(one.ids) - 1 for one in encoded(tokenizer, half, most)) for half in kept)
                return [max(own, default=1) for own in found]
            return [max(map(len, tokenized(tokenizer, half.text, most)), default=1) for half in halves]

        weights = [_with_files(config["backbone"]), self.stamp("backbone", config["backbone"])]
        task = [] if dataset.task == CLASSIFICATION else [dataset.task]
        lengths = remembered("text lengths", [dataset.fingerprint, most, weights, *task], compute)
        train, test = (dataclasses.replace(half, length=n) for half, n in zip(halves, lengths, strict=True))
        return dataclasses.replace(dataset, load=lambda: dataclasses.replace(splits, train=train, test=test))

    def _sizes(self, data: Ref) -> dict[int, Dataset]:
        """What is known already of a data set, by image size."""
        return self._datasets.setdefault(json.dumps(dataset_ref(data), sort_keys=True), {})

    def dataset_facts(self, data: Ref, image_size: int) -> dict[str, Any]:
        """The domains, classes and fingerprint of a data set, and whether it holds texts."""
        dataset = self.dataset(data, image_size)
        facts = {"domains": dataset.domains, "classes": dataset.classes, "fingerprint": dataset.fingerprint}
        return {**facts, "texts": dataset.texts, "task": dataset.task}

    def doubts(self, config: Mapping[str, Any]) -> list[str]:
        """What is wrong with the data of a cell that is computed all the same, see `fedbench.data.checked.doubts`.
        What fedbench draws itself is not looked at. Raises UserError."""
        data = config["data"]
        if self._is_foreign("dataset", data):
            return list(self._asked("doubts", [dict(config)], ("dataset", data), DECODING))
        component = self.registry.catalogue.find("dataset", data["name"])
        dataset = self.dataset(data, self.backbone(config["backbone"])["image_size"])
        if dataset.outline and not component.third_party:
            return []
        by_client = config["evaluation"].get("by") == "client"
        return doubts(dataset.load(), dataset, bool(component.source), by_client)

    def prepare(self, config: Mapping[str, Any]) -> list[str]:
        """Decode a cell's images into the cache and deal them to its clients. Returns `doubts`. Raises UserError where
        it fails."""
        data = config["data"]
        if self._is_foreign("dataset", data) or self._is_foreign("partition", data["partition"]):
            who = ("dataset", data) if self._is_foreign("dataset", data) else ("partition", data["partition"])
            return list(self._asked("prepare", [dict(config)], who, DECODING))
        backbone = self.backbone(config["backbone"])
        dataset = self.dataset(config["data"], backbone["image_size"])
        if fault := mismatch(dataset.texts, backbone["texts"], config) or self._task_fault(dataset, backbone, config):
            raise UserError(fault)
        train = dataset.load().train
        partition = self.registry.make("partition", config["data"]["partition"])
        proxy = proxy_of(train, config["data"].get("proxy"), config["seed"])
        clients = dealt(partition, train, len(dataset.domains), config["seed"], proxy)
        for key in (*SIZES, "devices"):
            given = config.get(key, {}).get("by_client")
            if given and len(given) < len(clients):
                raise UserError(
                    f"{key}: {counted(len(given), 'value')} for {counted(len(clients), 'client')}; give one for each"
                )
        return self.doubts(config)

    def _task_fault(self, dataset: Dataset, backbone: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        """Why a backbone or metrics are not for a data set's task; "" where they are."""
        if dataset.task == NEXT_TOKEN and not backbone.get("decodes"):
            return (
                f"the data set {config['data']['name']!r} is of next tokens, which the backbone "
                f"{config['backbone']['name']!r} predicts none of; a decoder is micro_llama, smollm2_135m or hf"
            )
        metrics = {}
        for ref in config["evaluation"]["metrics"]:
            if not self._is_foreign("metric", ref):
                metrics[ref["name"]] = self.registry.make("metric", ref)
        return task_fault(dataset.task, metrics)

    def fingerprints(self, config: Mapping[str, Any]) -> dict[str, str]:
        """What stands behind the names of a configuration: the pixels and the weights."""
        backbone = self.backbone(config["backbone"])
        return {
            "data": self.dataset(config["data"], backbone["image_size"]).fingerprint,
            "weights": backbone["fingerprint"],
        }

    def _is_foreign(self, kind: str, ref: Ref) -> bool:
        """Whether a component is third-party, and this process may not call it."""
        plugin = self.registry.catalogue.find(kind, ref["name"]).plugin
        return not self.in_place and self.registry.is_third_party(plugin)

    def _asked(self, what: str, given: list[Any], who: tuple[str, Ref], seconds: float = ASKING) -> Any:
        """What the method `what` gives in a child process. who: the component that it calls, by kind and reference.
        Raises UserError as the method does, Broke where the child has no answer."""
        files = [str(file) for file in self.registry.files.values()]
        asked = {"files": files, "base": os.path.abspath(self.base), "what": what, "given": given}
        try:
            found = supervisor.call("fedbench.registry.facts:fact", asked, timeout=self.registry.timeout or seconds)
        except supervisor.ChildFailed as error:
            component = self.registry.catalogue.find(who[0], who[1]["name"])
            called = f"the {component.kind} {component.name!r} of {self.registry.label(component.plugin)}"
            raise Broke(f"{called}: the process that called it {error.reason}") from error
        if raised := found.get("raised"):
            raise getattr(errors, raised, UserError)(found["message"])
        return found["fact"]

    def stamp(self, kind: str, ref: Ref) -> list[Any]:
        """What changes when the code behind a component, fedbench or a library that makes models does."""
        plugin = self.registry.catalogue.find(kind, ref["name"]).plugin
        if plugin not in self._stamps:
            self._stamps[plugin] = [
                self.registry.version(plugin),
                _tree(self.registry.module_file(plugin)),
                _tree(fedbench.__file__),
                *map(package_version, LIBRARIES),
            ]
        return self._stamps[plugin]


def mismatch(texts: bool, reads_texts: bool, config: Mapping[str, Any]) -> str:
    """Why a backbone cannot take a data set: it is one of images, or of texts; "" where it can. Texts are not augmented
    either."""
    if texts and config["data"].get("augment"):
        return f"data.augment changes images, and the data set {config['data']['name']!r} holds texts; leave it out"
    if texts == reads_texts:
        return ""
    data, backbone, kinds = config["data"]["name"], config["backbone"]["name"], ("images", "texts")
    instead = "micro_vit" if reads_texts else "micro_bert"
    return (
        f"the data set {data!r} holds {kinds[texts]}, and the backbone {backbone!r} takes {kinds[reads_texts]}; one of "
        f"{kinds[texts]} is {instead}"
    )


def task_fault(task: str, metrics: Mapping[str, Any]) -> str:
    """Why metrics, by name, are not for data of that task; "" where they are."""
    odd = [name for name, metric in metrics.items() if getattr(metric, "task", CLASSIFICATION) != task]
    if not odd:
        return ""
    of_tokens = "nll, perplexity, token_accuracy, choice_accuracy, exact_match and number_match"
    own = of_tokens if task == NEXT_TOKEN else "accuracy, loss"
    other = CLASSIFICATION if task == NEXT_TOKEN else NEXT_TOKEN
    return (
        f"evaluation.metrics: {odd[0]} is a metric of {other}, and the data's task is {task}, whose metrics are {own}"
    )


def _unread() -> Splits:
    raise AssertionError("the images of a third-party data set are read in workers alone")


def _with_files(ref: Ref) -> list[Any]:
    """A backbone, and what changes with the files and folders that its options name, and with the commit that the cache
    of the Hugging Face Hub has of a name."""
    return [dict(ref), [_facts_of(option) for name, option in sorted(ref.items()) if name != "name"]]


def _facts_of(option: Any) -> Any:
    if isinstance(option, Mapping | list):
        return [_facts_of(part) for part in (option.values() if isinstance(option, Mapping) else option)]
    if not isinstance(option, str) or not option:
        return None
    try:
        there = expanded(option).absolute()
        files = [there] if not there.is_dir() else sorted(islice(_files_in(there), MOST_FILES))
        commits = sorted((_hub_cache() / f"models--{option.replace('/', '--')}" / "refs").glob("*"))
    except (OSError, ValueError):  # no file can have such a name
        return None
    found = [[str(file), stat] for file in (*files, *commits) if (stat := _stat(file))]
    return found or None


def _hub_cache() -> Path:
    """Where the client of the Hub keeps models, read without importing it."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or expanded("~/.cache")) / "huggingface"
    return expanded(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")


def _stat(file: Path) -> list[int] | None:
    """Of a file: who copies another one over it can keep its size and its date, but not when that was done."""
    try:
        stat = file.stat()
    except (OSError, ValueError):
        return None
    return [stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size]


def _files_in(folder: Path) -> Iterator[Path]:
    """The files under a folder, but for hidden ones and compiled code."""
    for inner, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        yield from (Path(inner, name) for name in sorted(names))


def _tree(module_file: str | None) -> list[int] | None:
    """Newest change, total size and number of the files in a module's package; or the facts of a module in none."""
    if module_file is None:
        return None
    package = Path(module_file).parent
    if not (package / "__init__.py").is_file():
        return _stat(Path(module_file))
    stats = [stat for file in islice(_files_in(package), MOST_FILES) if (stat := _stat(file))]
    return [max(max(mtime, ctime) for mtime, ctime, _ in stats), sum(size for *_, size in stats), len(stats)]


Tell = Callable[[dict[str, Any]], None]


def registrations(asked: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """What a plugin registers, see `Registry.registrations_here`, or under `broken` why it does not load.

    Args:
        asked: `plugin`, its name, and `files`, those of the registry.
    """
    try:
        return Registry(asked["files"], in_place=True).registrations_here(asked["plugin"])
    except UserError as error:
        return {"broken": str(error)}


def hook(asked: Mapping[str, Any], tell: Tell) -> dict[str, str]:
    """Call a life-cycle hook of a plugin; `why` it broke, or "", and what it has `printed`.

    Args:
        asked: `plugin` and `files` as above, the name of the `hook` and its arguments, the `facts`.
    """
    why, printed = "", io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            Registry(asked["files"], in_place=True).call_hook(asked["plugin"], asked["hook"], asked["facts"])
        except BaseException as error:  # whatever a third-party module raises
            why = text_of(error) if isinstance(error, UserError) else summary_of(error)
    return {"why": why, "printed": printed.getvalue()}


def fact(asked: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """A `fact` about a backbone or data, or the kind of UserError that is `raised`, and its `message`.

    Args:
        asked: `files` as above, the `base` of `CachedFacts`, `what` of its methods is called and what it is `given`.
    """
    facts = CachedFacts(Registry(asked["files"], in_place=True), asked["base"])
    try:
        return {"fact": getattr(facts, asked["what"])(*asked["given"])}
    except UserError as error:
        return {"raised": type(error).__name__, "message": text_of(error)}
