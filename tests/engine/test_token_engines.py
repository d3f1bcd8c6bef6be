"""Next tokens in both engines, in float64 to 1e-12, and which methods have them."""

from dataclasses import replace

import pytest
import torch
from ragged import ragged, same
from tiny_texts import tiny_bert, tiny_llama

from fedbench.engine import cohort as fast
from fedbench.engine import microbatching, sequential
from fedbench.errors import NotApplicable, UserError
from fedbench.models.backbone import body_of
from fedbench.models.cost import Shape, per_image, whole
from fedbench.models.layered import PADDING
from fedbench.models.tokens import UNCOUNTED, TokenStates, over_tokens
from fedbench.seeding import generator
from fedbench.testing.setups import setup_of, tiny_vit
from fedbench.types import Exit
from fedbench_plugins.objectives import cross_entropy

pytestmark = pytest.mark.usefixtures("counted_once", "never_counted")

pytest.importorskip("transformers")

SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}
LORA = {"name": "lora", "rank": 2, "alpha": 4, "dropout": 0.3}
WORDS = 20


class TokenBatches:
    """Batches of prompts and completions of unequal lengths, as many texts as `sizes` says of each client in turn."""

    image_size = 8

    def __init__(self, ids):
        self.ids = ids

    def __call__(self, n):
        draw = torch.Generator().manual_seed(100 + self.ids[n])
        for k in range(5):
            T, B = (8, 5, 3)[(self.ids[n] + k) % 3], (3, 2)[(self.ids[n] + k) % 2]
            x = torch.randint(4, WORDS, (B, T), generator=draw)
            y = torch.randint(4, WORDS, (B, T), generator=draw)
            y[:, : T // 3] = UNCOUNTED
            x[0, 1 + T // 2 :], y[0, 1 + T // 2 :] = PADDING, UNCOUNTED
            yield x, y

    def first(self, n):
        return 3

    def labels(self, n):
        return torch.cat([y[y != UNCOUNTED] for _, y in self(n)])

    def only(self, rows):
        return TokenBatches([self.ids[n] for n in rows])


def setup_with_head(registry, model, capacities, adapter=LORA, **options):
    setup = setup_of(registry, model(), capacities, adapter, optimizer=SGD, clip=0.5, **options)
    setup.backbone.predict_tokens()
    return replace(setup, num_classes=WORDS, by_client=True, proxy=lambda: None)


def rounds(registry, engine, name, many=2, capacities=(4, 3, 1), **options):
    cohort = ragged(list(capacities), steps=[2, 1, 2][: len(capacities)], sizes=[3, 2])
    cohort = replace(cohort, batches=TokenBatches(cohort.ids))
    setup = setup_with_head(registry, tiny_llama, cohort.capacities.tolist(), engine=engine, **options)
    method = registry.make("method", {"name": name}, setup=setup)
    state, reports = method.init(generator(0)), []
    for t in range(many):
        state, report = method.round(state, t, cohort, generator(0, t))
        reports.append(vars(report.uploads) | {"seconds": None})
    return state, reports, method


NOT_APPLICABLE = {
    *("ditto", "exit_probe", "fedavg", "fedrod", "fedrolex", "fedv", "fedvz", "festa", "fjord", "head_only"),
    *("heterofl", "ova_lp", "pooled_probe", "reefl"),
}
FEW = ("fedra", "depthfl", "inclusivefl", "hetlora", "majority", "zero_round")


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_every_registered_method_learns_next_tokens_or_says_that_it_cannot(registry, few):
    """Those that train by the engine equal the oracle. Few are trained, all asked."""
    refused = {}
    for name in registry.catalogue.components["method"]:
        many = int(not few or name in FEW)
        try:
            one = rounds(registry, fast.train, name, many, (4, 1))
        except NotApplicable as reason:
            refused[name] = str(reason)
            continue
        if not one[1] or name == "zero_round":
            continue
        assert all(up["loss"].isfinite().all() for up in one[1]), name
        if not one[2].alone:
            same(one[:2], rounds(registry, sequential.train, name, many, (4, 1))[:2], name)
    assert set(refused) == NOT_APPLICABLE, refused
    assert "frozen" in refused["head_only"] and "vocabulary" in refused["fedavg"]


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_packed_and_padded_texts_and_parts_of_batches_equal_the_oracles(registry, monkeypatch, micro_batch):
    adapter = {**LORA, "dropout": 0.0}
    given = {"adapter": adapter, "micro_batch": micro_batch}
    expected = rounds(registry, sequential.train, "depthfl", **given)[:2]
    same(rounds(registry, fast.train, "depthfl", **given)[:2], expected)
    monkeypatch.setattr(microbatching, "ROWS", 1)  # a client a group, whose texts are packed
    same(rounds(registry, fast.train, "depthfl", **given)[:2], expected)
    whole = rounds(registry, sequential.train, "depthfl", adapter=adapter)[:2]
    torch.testing.assert_close(whole[1][0]["loss"], expected[1][0]["loss"], rtol=1e-12, atol=1e-12)


def test_exits_read_the_hidden_state_through_the_final_norm_and_the_tied_head():
    model = body_of(tiny_llama()).double()
    model.predict_tokens()
    for name in ("exit1", "head"):
        model.add_classifier(name, WORDS)
    x = torch.randint(4, WORDS, (2, 6), generator=torch.Generator().manual_seed(0))
    one, last = model(x, [0, 2], [Exit(1, "exit1"), Exit(2, "head")])
    hidden = model.layer(0, model.embed(x), model.mask(x))
    assert one.weight is model.model.embeddings.weight and not model.shared()
    torch.testing.assert_close(one.states, model.model.norm(hidden), rtol=0, atol=0)
    deeper = model.layer(2, hidden, model.mask(x))
    torch.testing.assert_close(last.logits(), model.model.norm(deeper) @ one.weight.T)


def test_majority_is_the_unigram_distribution_and_zero_round_the_untouched_model(registry):
    state, _, method = rounds(registry, fast.train, "majority", 1)
    counts = torch.bincount(torch.cat([TokenBatches([n]).labels(0) for n in range(3)]), minlength=WORDS)
    answer = method.predictor(state)(torch.zeros(2, 3, dtype=torch.int64))
    expected = ((counts + 1.0) / (counts + 1.0).sum()).log().expand(2, 3, WORDS)
    torch.testing.assert_close(answer.logits().log_softmax(-1), expected)
    state, reports, method = rounds(registry, fast.train, "zero_round")
    x = torch.randint(4, WORDS, (2, 6), generator=torch.Generator().manual_seed(0))
    model = body_of(tiny_llama()).double()
    model.predict_tokens()
    model.add_classifier("head", WORDS)
    expected = model(x, range(4), [Exit(4, "head")])[0].states
    torch.testing.assert_close(method.predictor(state)(x).states, expected, rtol=0, atol=0)
    assert not reports[0]["arrived"].numel()


def test_the_ensemble_of_depthfl_is_the_mean_of_its_exits_logits(registry):
    state, _, method = rounds(registry, fast.train, "depthfl", 1)
    model = method.predictor(state)
    x = torch.randint(4, WORDS, (2, 6), generator=torch.Generator().manual_seed(0))
    each = model.blocks(x, model.layers, model.exits)
    assert len(each) > 1
    torch.testing.assert_close(model(x)["ensemble"].logits(), torch.stack([one.logits() for one in each]).mean(0))


def test_the_cost_counts_the_head_forward_and_backward_to_the_hidden_state():
    flops = {}
    for tokens in (False, True):
        model = body_of(tiny_llama())
        if tokens:
            model.predict_tokens()
        model.add_classifier("head", WORDS)
        for p in model.blocks[3].parameters():
            p.requires_grad_(True)
        objective = over_tokens(cross_entropy) if tokens else cross_entropy
        flops[tokens], _ = per_image(Shape(model), whole(4, [Exit(4, "head")]), objective, 8)
    T, D = 8, 8
    head, classifier = 4 * T * D * WORDS, 6 * D * WORDS  # the classifier's weight has a gradient, too
    assert flops[True] - flops[False] == head - classifier


def test_encoders_images_and_trained_embeddings_are_refused(registry):
    with pytest.raises(UserError, match="both directions"):
        body_of(tiny_bert()).predict_tokens()
    with pytest.raises(UserError, match="predicts no next tokens"):
        body_of(tiny_vit()).predict_tokens()
    setup = setup_with_head(registry, tiny_llama, [4], {"name": "lora", "rank": 2})
    setup = replace(setup, adapter=lambda blocks: blocks.model.requires_grad_(True))
    with pytest.raises(UserError, match="head of next tokens"):
        registry.make("method", {"name": "fedra"}, setup=setup)


def test_a_loss_of_shapes_alone_counts_every_token():
    states = torch.empty(1, 4, 3, device="meta", requires_grad=True)
    loss = over_tokens(cross_entropy)(
        [TokenStates(states, torch.empty(5, 3, device="meta"))], torch.zeros(1, 4, dtype=torch.int64, device="meta"), 0
    )
    assert loss.is_meta and loss.requires_grad
