"""What a server has of one image, with a micro ViT: features and FedV's gradient tell of it, FedVZ's estimate less."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedbench.families.split.cut import Cut
from fedbench.families.split.server import Backward, ZerothOrder
from fedbench.models.backbone import Blocks
from fedbench.registry.assets import Assets
from fedbench.seeding import generator
from fedbench_plugins.invert.attack import Descent, Observer, correlation, invert

IMAGES, VICTIMS, TOKENS, DIM = 4, 2, 17, 64
SHORT = Descent(steps=150)


@pytest.fixture(scope="module")
def images(registry, own_cache):
    train = Assets(registry).dataset({"name": "strokes6"}, 32).load().train
    chosen = np.random.default_rng(0).choice(len(train), IMAGES, replace=False)
    return torch.from_numpy(train.x[chosen]).float() / 255, torch.from_numpy(train.y[chosen])


@pytest.fixture(scope="module")
def mean(registry, own_cache):
    """The mean training image (1, 3, 32, 32)."""
    train = Assets(registry).dataset({"name": "strokes6"}, 32).load().train
    return torch.from_numpy(train.x.mean(0, dtype=np.float32, keepdims=True)) / 255


@pytest.fixture(scope="module")
def observer(registry):
    source = registry.make("backbone", {"name": "micro_vit"})
    cut = Cut(Blocks(source.model), 30, client_start="pretrained")
    cut.model.draw(generator(0))
    cut.model.eval()
    half = torch.full((1, 3, 1, 1), 0.5)
    with sdpa_kernel(SDPBackend.MATH):
        yield Observer(cut, half, half)


def learners(cut):
    return {"fedv": Backward(cut), "fedvz": ZerothOrder(cut, seed=0, epsilon=1e-4, directions=1)}


@pytest.fixture(scope="module")
def gradients(observer, images):
    """g_s of every victim, by method."""
    x, y = images
    return {
        name: [observer.g_s(x[v : v + 1], y[v : v + 1], learner, -1, v) for v in range(VICTIMS)]
        for name, learner in learners(observer.cut).items()
    }


def correlations(observer, images, gradients, seen, how):
    """(victims, 2): of the attack, and of the blind one."""
    found = []
    for v, g_s in enumerate(gradients):
        x, y = images[0][v : v + 1], images[1][v : v + 1]
        attacks = observer.attacks(x, y, g_s, generator(0, client=v))
        (one,) = (a for a in attacks if (a.seen, a.how) == (seen, how))
        guesses = [invert(m, x.shape, SHORT, generator(v)) for m in (one.mismatch, one.blind)]
        found.append([correlation(guess, x) for guess in guesses])
    return np.array(found)


def test_fedvs_gradient_is_the_one_of_its_own_round(observer, images, gradients):
    x, y = images[0][:1], images[1][:1]
    observer.loss(observer.h(x), y).backward()
    own = {name: w.grad for name, w in observer.cut.w_E.items()}
    for parameter in observer.cut.model.parameters():
        parameter.grad = None
    assert gradients["fedv"][0].keys() == own.keys()
    assert all(torch.allclose(g, own[name], atol=1e-6) for name, g in gradients["fedv"][0].items())


def test_fedvzs_estimate_is_one_direction_of_all(gradients):
    """So that its rows span everything, where those of FedV's gradient span as much as there are tokens."""
    name = "model.blocks.0.attn.qkv.weight"
    for v in range(VICTIMS):
        ranks = [int(torch.linalg.matrix_rank(gradients[method][v][name].double(), rtol=1e-6)) for method in gradients]
        assert ranks[0] <= TOKENS and ranks[1] == DIM


def test_features_give_every_image_away_whatever_the_method(observer, images, mean):
    scores = correlations(observer, images, [None] * VICTIMS, "features", "match")
    guessed = np.array([correlation(mean, x) for x in images[0][:VICTIMS]])
    assert (scores[:, 0] > scores[:, 1]).all() and (scores[:, 0] > guessed).all()


@pytest.mark.slow
def test_the_span_of_fedvs_gradient_tells_of_every_image_and_that_of_fedvzs_less(observer, images, gradients):
    fedv, fedvz = (correlations(observer, images, gradients[m], "gradient", "span") for m in ("fedv", "fedvz"))
    assert (fedv[:, 0] > fedv[:, 1]).all()
    assert (fedv[:, 0] > fedvz[:, 0]).all()


def test_true_images_explain_what_was_seen(observer, images, gradients):
    x, y = images[0][:1], images[1][:1]
    for one in observer.attacks(x, y, gradients["fedv"][0], generator(0)):
        assert one.mismatch(x).item() == pytest.approx(0.0, abs=1e-5)
        assert one.blind(x).item() > 0.01


def test_a_server_that_learns_nothing_has_features_alone(observer, images):
    seen = [(a.seen, a.how) for a in observer.attacks(images[0][:1], images[1][:1], None, generator(0))]
    assert seen == [("features", "match")]


def test_a_batch_with_more_tokens_than_channels_has_no_span(observer, images, gradients):
    seen = {a.how for a in observer.attacks(*(part[:4] for part in images), gradients["fedv"][0], generator(0))}
    assert 4 * TOKENS > DIM and seen == {"match", "cosine"}
