"""What is wrong with data, by one judgement for `data check`, `init`, `plan`, `run` and boards; and with clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from fedbench.disk import hash_of_bytes, remembered
from fedbench.errors import UserError
from fedbench.types import NEXT_TOKEN, Client, Clients, Dataset, Images, Splits, Texts
from fedbench.types.dataset import TASKS

LOOKED_AT = 256  # float images whose range is looked at; a data set may be larger than memory
DARK, DARKER = -0.25, 0.01  # images are normalised already if a larger share of their values than this lies below that
NOBODY = "the partition makes no client at all"
WAY = 1  # in which data are judged: raise it whenever `findings` says something else of the same data


def loaded(dataset: Dataset, name: str) -> Splits:
    """What the data set of that name loads. Raises UserError where that is no pair of splits."""
    if fault := fault_of_load(dataset.load):
        raise refusal(name, fault)
    splits = dataset.load()
    if fault := fault_of_splits(splits):
        raise refusal(name, fault)
    return splits


def refusal(name: str, fault: str) -> UserError:
    """What is raised for a data set with such a fault."""
    return UserError(f"the data set {name!r} cannot be used: {fault}")


def fault_of_load(load: object) -> str:
    """What is wrong with what is to load the data, in a sentence; "" where nothing is."""
    if callable(load):
        return ""
    return f"`load` must be a function that returns Splits, not {of_what(load)}: write `load=lambda: Splits(...)`"


def fault_of_splits(splits: object) -> str:
    """What is wrong with what `load` has returned, in a sentence; "" where nothing is."""
    if not isinstance(splits, Splits):
        return f"`load` must return fedbench.types.Splits(train, test), not {of_what(splits)}"
    for split in ("train", "test"):
        if not isinstance(half := getattr(splits, split), Images | Texts):
            return f"`load` must return Splits of fedbench.types.Images or Texts, and {split} is {of_what(half)}"
    return ""


@dataclass(frozen=True)
class DataFinding:
    """The result of one check. level: `ok`, `note` (not decided) or `WRONG`."""

    level: str
    text: str


def findings(splits: Splits, dataset: Dataset, official: bool = False, by_client: bool = False) -> list[DataFinding]:
    """All that is wrong or odd about the images or texts of a data set, and their labels.

    Args:
        splits: what it has loaded.
        dataset: the data set.
        official: whether official lists say which there are of which class.
        by_client: as of `fault_of_data`.
    """
    if faults := list(_faults(splits, dataset, by_client)):
        return [DataFinding("WRONG", fault) for fault in faults]
    found = [] if official else _of_untrained(splits, dataset)
    if count := repeated(splits):
        n = len(splits.test)
        found.append(DataFinding("WRONG" if too_many(count, n) else "note", repeated_message(count, dataset, n)))
    return found


def doubts(splits: Splits, dataset: Dataset, official: bool = False, by_client: bool = False) -> list[str]:
    """What is WRONG by `findings` with data that cells are computed with all the same, a sentence each.

    It is kept in the cache folder, since every image is looked at. Empty where `fault_of_data` has a fault.
    """
    if next(_faults(splits, dataset, by_client), ""):
        return []
    labels = [hash_of_bytes(np.concatenate([half.y, half.domain]).tobytes()) for half in (splits.train, splits.test)]
    key = [WAY, dataset.fingerprint, dataset.classes, dataset.domains, dataset.texts, labels, official]

    def compute() -> list[str]:
        return [one.text for one in findings(splits, dataset, official, by_client) if one.level == "WRONG"]

    return list(remembered("data doubts", key, compute))


def fault_of_data(splits: Splits, dataset: Dataset, by_client: bool = False) -> str:
    """What is wrong with both splits of a data set, so that no cell is computed with it, in a sentence; "" where
    nothing is. by_client: whether clients are tested, so that a domain may have no test data."""
    return next(_faults(splits, dataset, by_client), "")


def _faults(splits: Splits, dataset: Dataset, by_client: bool) -> Iterator[str]:
    """Those of data that no cell is computed with."""
    halves = [fault_of_split(getattr(splits, split), dataset, split) for split in ("train", "test")]
    found = [*filter(None, [fault_of_classes(dataset), *halves])]
    yield from found
    if not found and (fault := _fault_of_one_class(splits, dataset)):
        yield fault
    if not found and not by_client and (fault := fault_of_domains(splits.test, dataset)):
        yield fault


def fault_of_classes(dataset: Dataset) -> str:
    """That a data set has one class alone, which any answer is right about, in a sentence; "" where it has more."""
    if len(dataset.classes) > 1 or dataset.task == NEXT_TOKEN:
        return ""
    name = f"the one class {dataset.classes[0]!r}" if dataset.classes else "no class"
    return _two_needed(f"it has {name}", dataset)


def _fault_of_one_class(splits: Splits, dataset: Dataset) -> str:
    """The same of labels: whatever answers that class is right about all of them."""
    first = int(splits.test.y[0])
    if dataset.task == NEXT_TOKEN:
        return ""
    if (splits.test.y != first).any() or (splits.train.y != first).any():
        return ""
    noun = "text" if dataset.texts else "image"
    return _two_needed(f"every training and test {noun} has the class {dataset.classes[first]!r}", dataset)


def _two_needed(what: str, dataset: Dataset) -> str:
    """With what the reader has noted: it may have joined classes."""
    return "; ".join([f"{what}, and scores of one class are 100 % for all; two are needed", *dataset.notes])


def _of_untrained(splits: Splits, dataset: Dataset) -> list[DataFinding]:
    """About classes that no training image or text has: wrong where they are tested."""
    if not (message := untrained_message(splits.train, dataset)):
        return []
    tested = int(np.isin(splits.test.y, splits.train.y, invert=True).sum())
    noun = "text" if dataset.texts else "image"
    more = f"; {tested:,} of {len(splits.test):,} test {noun}s are of such a class" if tested else ""
    return [DataFinding("WRONG" if tested else "note", message + more)]


def fault_of_split(half: Images | Texts, dataset: Dataset, split: str) -> str:
    """What is wrong with a split, in a sentence; "" where nothing is."""
    if dataset.task not in TASKS or (dataset.task == NEXT_TOKEN and not dataset.texts):
        return f"`Dataset(task=...)` is {' or '.join(TASKS)}, the latter of texts, not {dataset.task!r:.80}"
    if dataset.task != NEXT_TOKEN and getattr(half, "completion", None) is not None:
        return f"{split} holds completions, and `Dataset(task={dataset.task!r})` says otherwise"
    if isinstance(half, Texts) != dataset.texts:
        return f"{split} holds {of_what(half)}, and `Dataset(texts={dataset.texts})` says otherwise"
    of_values = _fault_of_texts(half, split) if isinstance(half, Texts) else _fault_of_images(half, split)
    return of_values or _fault_of_labels(half, dataset, split)


def _fault_of_images(images: Images, split: str) -> str:
    n, x = len(images.y), images.x
    shaped = isinstance(x, np.ndarray) and x.ndim == 4 and x.shape[1] == 3 and x.shape[2] == x.shape[3]
    if not shaped or x.dtype not in (np.uint8, np.float32):
        return f"{split}.x must be uint8 or float32 (n, 3, H, H), not {of_what(x)}"
    if len(x) != n:
        return f"{split} has {len(x)} images but {n} labels"
    if x.dtype == np.float32 and n and (fault := _fault_of_range(x[:LOOKED_AT])):
        return f"{split}.x {fault}"
    return ""


def _fault_of_texts(texts: Texts, split: str) -> str:
    n, text = len(texts.y), texts.text
    if isinstance(text, str) or not isinstance(text, Sequence):
        return f"{split}.text must be a list of strings or of pairs of strings, not {of_what(text)}"
    if len(text) != n:
        return f"{split} has {len(text)} texts but {n} labels"
    pairs = bool(n) and not isinstance(text[0], str)
    for i, one in enumerate(text):
        if not (_is_pair(one) if pairs else isinstance(one, str)):
            wanted = "a pair of strings, as the first is" if pairs and i else "a string, or all are pairs of strings"
            return f"{split}.text[{i}] must be {wanted}, not {of_what(one)}"
    if texts.completion is not None:
        return _fault_of_completions(texts, split)
    if n and not any(map(any, text) if pairs else text):
        return f"{split}.text has nothing but empty texts"
    return ""


def _fault_of_completions(texts: Texts, split: str) -> str:
    n, given = len(texts.y), texts.completion
    assert given is not None
    if len(given) != n or not all(isinstance(one, str) for one in given):
        return f"{split}.completion must be a string for each of the {n} prompts"
    empty = next((i for i, one in enumerate(given) if not one.strip()), None)
    if empty is not None:
        return f"{split}.completion[{empty}] is empty: there is nothing in it to learn"
    if texts.choices is not None and (len(texts.choices) != n or not all(texts.choices)):
        return f"{split}.choices must hold one other completion at least for each of the {n} prompts"
    return ""


def _is_pair(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(part, str) for part in value)


def _fault_of_labels(half: Images | Texts, dataset: Dataset, split: str) -> str:
    n = len(half.y)
    if not n:
        return f"{split} is empty"
    for part, names in (("y", dataset.classes), ("domain", dataset.domains)):
        values = getattr(half, part)
        if values.shape != (n,) or values.dtype != np.int64:
            return f"{split}.{part} must be int64 ({n},), not {of_what(values)}"
        if values.min() < 0 or values.max() >= len(names):
            return f"{split}.{part} must lie between 0 and {len(names) - 1}"
    if (group := half.group) is not None and (group.shape != (n,) or group.dtype != np.int64 or group.min() < 0):
        return f"{split}.group must be int64 ({n},), 0 or more, not {of_what(group)}"
    return ""


def _fault_of_range(x: np.ndarray) -> str:
    """What is wrong with the values of float images, in half a sentence; "" where nothing is."""
    below = float((x < DARK).mean())
    if below > DARKER:
        fault = f"looks normalised already: {below:.0%} of its values are below {DARK:g}"
        return f"{fault}; give values in [0, 1], `data.normalize` does the rest"
    far = float(np.abs(x).max())
    return "" if far <= 2 else f"in float32 must lie in or near [0, 1], not reach {far:g}; divide by 255"


def repeated(splits: Splits) -> int:
    """How many test images or texts are training ones too, pixel for pixel or word for word."""
    test = Counter(_values(splits.test))
    return sum(test.pop(value, 0) for value in _values(splits.train))


def _values(half: Images | Texts) -> Iterator[Hashable]:
    """What is equal where images or texts are."""
    if isinstance(half, Texts) and half.completion is not None:
        return zip(half.text, half.completion, strict=True)
    if isinstance(half, Texts):
        return (one if isinstance(one, str) else tuple(one) for one in half.text)
    return (blake2b(np.ascontiguousarray(x).data, digest_size=16).digest() for x in half.x)


def repeated_message(count: int, dataset: Dataset, n: int) -> str:
    """So many of n test images or texts are training ones too, in a sentence."""
    noun, by = ("texts", "word for word") if dataset.texts else ("images", "pixel for pixel")
    return f"{count:,} of {n:,} test {noun} are training {noun} too, {by}"


def too_many(count: int, n: int) -> bool:
    """Whether more than a tenth of n test images or texts were trained on, and scores are of what was learnt by heart;
    real data sets have a few."""
    return 10 * count > n


def untrained_message(train: Images | Texts, dataset: Dataset) -> str:
    """The classes that no training image or text has, in a sentence; "" where there is none."""
    noun = "text" if dataset.texts else "image"
    counts = np.bincount(train.y, minlength=len(dataset.classes))
    lacking = [dataset.classes[c] for c in np.flatnonzero(counts == 0)]
    if not lacking:
        return ""
    if len(lacking) == 1:
        return f"no training {noun} has the class {lacking[0]!r}"
    return f"{len(lacking)} of {len(counts)} classes have no training {noun}, {lacking[0]!r} among them"


def fault_of_domains(test: Images | Texts, dataset: Dataset) -> str:
    """A domain that could not be scored, for want of test data, in a sentence; "" where there is none."""
    counts = np.bincount(test.domain, minlength=len(dataset.domains))
    if counts.all():
        return ""
    noun = "text" if dataset.texts else "image"
    return f"the domain {dataset.domains[int(counts.argmin())]!r} has no test {noun}, and so no score"


def fault_of_clients(clients: Sequence[Client], n: int) -> str:
    """What is wrong with the clients who share out n images, in a sentence; "" where nothing is."""
    if fault := _fault_of_arrays(clients) if isinstance(clients, Clients) else _fault_of_list(clients):
        return fault
    owned = clients.indices if isinstance(clients, Clients) else np.concatenate([one.indices for one in clients])
    if not len(owned):
        return ""
    if owned.min() < 0 or owned.max() >= n:
        return f"indices must be positions in y, from 0 to {n - 1}, not {owned.min()} to {owned.max()}"
    owners = np.bincount(owned)
    if owners.max() > 1:
        return f"image {int(owners.argmax())} is dealt {owners.max():,} times; each goes to one client at most, once"
    return ""


def _fault_of_list(clients: Sequence[Client]) -> str:
    wanted = "a partition returns a list of fedbench.types.Client, not"
    if not isinstance(clients, list | tuple):
        return f"{wanted} {of_what(clients)}"
    for i, client in enumerate(clients):
        if not isinstance(client, Client):
            return f"{wanted} one whose item {i} is {of_what(client)}"
    if not clients:
        return NOBODY
    if [client.id for client in clients] != list(range(len(clients))):
        return "client ids must be 0, 1, 2, ... in order"
    for client in clients:
        if not _are_positions(own := client.indices):
            return f"the indices of client {client.id} must be positions in y, int64 (n,), not {of_what(own)}"
    return ""


def _fault_of_arrays(clients: Clients) -> str:
    if not len(clients):
        return NOBODY
    for what in ("domains", "indices"):
        if not _are_positions(getattr(clients, what)):
            return f"the {what} of all clients must be int64 (n,), not {of_what(getattr(clients, what))}"
    if clients.sizes.min() < 0 or clients.starts[-1] != len(clients.indices):
        return f"the sizes of all clients must add up to their {len(clients.indices)} images, each 0 or more"
    return ""


def _are_positions(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind == "i"


def of_what(value: Any) -> str:
    """A value in a few words."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{type(value).__name__} {value.dtype} {tuple(value.shape)}"
    return type(value).__name__
