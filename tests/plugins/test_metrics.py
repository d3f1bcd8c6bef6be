"""Metrics as scikit-learn has them, on odd batches, with classes that do not occur; and what their sums hold."""

import warnings

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from fedbench.registry.registry import Registry
from fedbench.types import SummedMetric
from fedbench.types.metric import measured
from fedbench_plugins import metrics

C = 7
NAMES = ["accuracy", "loss", "top5_accuracy", "balanced_accuracy", "macro_f1", "ece", "auroc"]


def made(n, classes=range(C), seed=0, on_steps=False):
    """Logits (n, C) and labels of some classes. on_steps: with softmax probabilities that are multiples of 1 / 1000."""
    draw = np.random.default_rng(seed)
    y = torch.from_numpy(draw.choice(list(classes), n))
    if not on_steps:
        return torch.from_numpy(2 * draw.standard_normal((n, C))), y
    p = draw.multinomial(1000 - C, draw.dirichlet([0.5] * C, n)) + 1  # (n, C), each row sums up to 1000
    return torch.from_numpy(p / 1000).log(), y


def batches(logits, y, sizes=(1, 0, 13, 5)):
    sizes = [*sizes, len(y) - sum(sizes)]
    return zip(logits.split(sizes), y.split(sizes), strict=True)


def of_sklearn(name, logits, y):
    p, y = logits.softmax(1).numpy(), y.numpy()
    answer = p.argmax(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "accuracy": lambda: sk.accuracy_score(y, answer),
            "loss": lambda: sk.log_loss(y, p, labels=range(C)),
            "top5_accuracy": lambda: sk.top_k_accuracy_score(y, p, k=5, labels=range(C)),
            "balanced_accuracy": lambda: sk.balanced_accuracy_score(y, answer),
            "macro_f1": lambda: sk.f1_score(y, answer, average="macro"),
            "auroc": lambda: np.mean([sk.roc_auc_score(y == c, p[:, c].round(12)) for c in set(y) if (y != c).any()]),
        }[name]()


OCCURRING = {"all": range(C), "some": [0, 2, 5], "one": [3]}
UNDEFINED = {("ece", which) for which in OCCURRING} | {("auroc", "one")}  # in scikit-learn


@pytest.mark.parametrize(
    ("name", "which"), [(name, which) for name in NAMES for which in OCCURRING if (name, which) not in UNDEFINED]
)
def test_a_metric_of_odd_batches_is_that_of_scikit_learn(name, which):
    classes = OCCURRING[which]
    logits, y = made(61, classes, on_steps=name == "auroc")
    found, expected = measured(getattr(metrics, name)(), batches(logits, y)), of_sklearn(name, logits, y)
    assert found == pytest.approx(expected, abs=1e-12, rel=1e-12)


def test_of_two_classes_auroc_is_that_of_scikit_learn():
    logits, y = made(61, [0, 1])
    logits = torch.tensor([[p, 1000 - p] for p in range(60, 121)]).div(1000).log()
    p = logits.softmax(1)[:, 1].numpy().round(12)
    assert measured(metrics.auroc(), batches(logits, y)) == pytest.approx(sk.roc_auc_score(y.numpy(), p), abs=1e-12)


def test_auroc_of_one_class_is_that_of_a_constant_answer():
    assert metrics.auroc()(*made(5, [3])) == 0.5


def test_auroc_is_off_by_no_more_than_the_pairs_within_a_step():
    draw = torch.Generator().manual_seed(1)
    logits, y = torch.randn(400, C, generator=draw, dtype=torch.float64), torch.randint(C, (400,), generator=draw)
    p = logits.softmax(1).numpy()
    exact = np.mean([sk.roc_auc_score(y.numpy() == c, p[:, c]) for c in range(C)])
    coarse, fine = (abs(metrics.auroc(bins)(logits, y) - exact) for bins in (10, 100_000))
    assert fine < 1e-4 < coarse < 0.05


@pytest.mark.parametrize("bins", [15, 4])
def test_ece_is_the_mean_gap_of_bins_that_hold_their_upper_edges(bins):
    """Written out: `torchmetrics` has the same, scikit-learn has none."""
    logits, y = made(61)
    p = logits.softmax(1)
    confidence, right = p.max(1).values.tolist(), (p.argmax(1) == y).tolist()
    gaps = 0.0
    for b in range(bins):
        own = [i for i, c in enumerate(confidence) if b / bins < c <= (b + 1) / bins]
        gaps += abs(sum(right[i] for i in own) - sum(confidence[i] for i in own)) / len(y)
    assert measured(metrics.ece(bins), batches(logits, y)) == pytest.approx(gaps, abs=1e-12)


def test_a_sure_and_right_answer_is_calibrated():
    logits = torch.tensor([[1000.0, 0.0]])
    assert metrics.ece()(logits, torch.tensor([0])) == 0
    assert metrics.ece()(logits, torch.tensor([1])) == 1


def test_of_equal_logits_top5_takes_the_first():
    logits = torch.zeros(C, C)
    assert metrics.top5_accuracy()(logits, torch.arange(C)) == pytest.approx(5 / C)
    assert metrics.top5_accuracy()(torch.zeros(3, 3), torch.arange(3)) == 1


@pytest.mark.parametrize("name", NAMES)
def test_sums_are_no_larger_than_classes_and_bins(name):
    """Whatever number of examples there are: no logits are kept."""
    metric = getattr(metrics, name)()
    few, many = (metric.sums(*made(n)) for n in (3, 50))
    assert few.shape == many.shape and few.dtype == many.dtype
    assert few.dtype in (torch.int64, torch.float64)


@pytest.mark.parametrize("n", [1, 7, 333])
def test_accuracy_and_loss_have_the_bits_of_a_mean_over_all_examples(n):
    """As results have them that were made before metrics were sums."""
    logits, y = made(n, seed=n)
    assert metrics.accuracy()(logits, y) == (logits.argmax(1) == y).double().mean().item()
    assert metrics.loss()(logits, y) == torch.nn.functional.cross_entropy(logits, y).item()


def test_a_plain_function_is_given_all_batches_at_once():
    seen = []
    assert measured(lambda logits, y: seen.append(len(y)) or 0.25, batches(*made(61))) == 0.25
    assert seen == [61]


def test_every_metric_says_which_way_is_better():
    found = Registry().catalogue.measures(NAMES)
    assert {name for name, said in found.items() if said["better"] == "lower"} == {"ece"}
    assert all(found[name]["unit"] == "%" for name in found) and set(found) == {*NAMES} - {"accuracy", "loss"}
    assert all(isinstance(getattr(metrics, name)(), SummedMetric) for name in NAMES)
