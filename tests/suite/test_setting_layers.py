"""The algebra of laying settings on each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedbench.suite.setting_layers import merge, nest, replaces, stack
from fedbench.suite.yaml import Mark, Node

LOW, HIGH = Mark("low"), Mark("high")

scalars = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["a", "b"]))
options = st.dictionaries(
    st.sampled_from(["p", "q", "r"]), st.one_of(scalars, st.lists(scalars, max_size=2)), max_size=3
)
components = st.builds(
    lambda name, rest: ({"name": name} if name else {}) | rest, st.sampled_from([None, "one", "two"]), options
)
settings = st.fixed_dictionaries(
    {},
    optional={"backbone": components, "adapter": components, "train": options, "engine": scalars, "data": components},
)


def laid(under, over):
    return merge(Node.of(under, LOW), Node.of(over, HIGH)).plain()


@given(settings)
def test_an_empty_layer_changes_nothing(layer):
    assert laid(layer, {}) == layer
    assert laid({}, layer) == layer


@given(settings, settings)
def test_laying_a_layer_twice_is_laying_it_once(under, over):
    once = laid(under, over)
    assert laid(once, over) == once


@given(settings, settings)
def test_every_value_of_the_upper_layer_stands(under, over):
    result = laid(under, over)
    for key, value in over.items():
        if isinstance(value, dict):
            assert all(result[key][inner] == part for inner, part in value.items())
        else:
            assert result[key] == value


@given(settings, settings)
def test_nothing_comes_from_nowhere(under, over):
    result = laid(under, over)
    assert result.keys() == under.keys() | over.keys()
    for key, value in result.items():
        for inner, part in value.items() if isinstance(value, dict) else ():
            assert part in (under.get(key, {}).get(inner, part), over.get(key, {}).get(inner, part))


@given(settings, settings)
def test_no_option_of_another_component_survives(under, over):
    result = laid(under, over)
    for key in ("backbone", "adapter", "data"):
        names = [layer.get(key, {}).get("name") for layer in (under, over)]
        if None not in names and names[0] != names[1]:
            assert result[key] == over[key]


@given(settings, settings, settings)
def test_layers_of_the_same_components_may_be_grouped_either_way(a, b, c):
    """Without renaming, merging is associative; a renaming must be seen from below, so `stack` goes bottom-up."""
    layers = [
        {k: {**v, "name": "one"} if k in ("backbone", "adapter", "data") else v for k, v in x.items()}
        for x in (a, b, c)
    ]
    a, b, c = (Node.of(layer, LOW) for layer in layers)
    assert merge(merge(a, b), c).plain() == merge(a, merge(b, c)).plain() == stack([a, b, c]).plain()


def test_a_renamed_data_set_keeps_partition_size_and_colours():
    under = {"data": {"name": "one", "root": "x", "partition": {"name": "dirichlet", "alpha": 1}, "image_size": 8}}
    assert laid(under, {"data": {"name": "two"}}) == {
        "data": {"name": "two", "partition": {"name": "dirichlet", "alpha": 1}, "image_size": 8}
    }
    assert laid(under, {"data": {"partition": {"name": "by_domain"}}})["data"]["partition"] == {"name": "by_domain"}


def test_an_optimiser_is_no_component_and_keeps_its_learning_rate():
    under = {"train": {"optimizer": {"name": "sgd", "lr": 0.1}}}
    assert laid(under, {"train": {"optimizer": {"name": "adamw"}}})["train"]["optimizer"] == {
        "name": "adamw",
        "lr": 0.1,
    }


def test_capacities_and_participation_are_replaced_whole():
    under = {"capacities": {"by_domain": [1, 2]}, "participation": {"fraction": 0.5}}
    over = {"capacities": {"uniform": [1, 2]}, "participation": {"count": 3}}
    assert laid(under, over) == over


def test_a_regulariser_is_replaced_whole_and_by_nothing_too():
    under = {"train": {"rounds": 3, "regularizer": {"feddyn": 0.1}}}
    for over in ({"fedprox": 1.0}, {"feddyn": 0.2}, None):
        assert laid(under, {"train": {"regularizer": over}}) == {"train": {"rounds": 3, "regularizer": over}}
    assert laid(under, {"train": {"rounds": 4}})["train"]["regularizer"] == {"feddyn": 0.1}


def test_values_keep_the_mark_of_the_layer_they_came_from():
    both = merge(Node.of({"train": {"p": 1, "q": 1}}, LOW), Node.of({"train": {"q": 2}}, HIGH))
    assert (both.get("train", "p").mark, both.get("train", "q").mark) == (LOW, HIGH)


def test_merging_changes_neither_layer():
    a, b = Node.of({"train": {"p": 1}}, LOW), Node.of({"train": {"q": 2}}, HIGH)
    merge(a, b)
    assert (a.plain(), b.plain()) == ({"train": {"p": 1}}, {"train": {"q": 2}})


def test_what_replaces_a_swept_key():
    def anew(layer, dotted):
        return replaces(Node.of(layer, LOW), dotted)

    assert anew({"train": {"rounds": 3}}, "train.rounds")
    assert not anew({"train": {"rounds": 3}}, "train.clip")
    assert anew({"backbone": {"name": "x"}}, "backbone")
    assert not anew({"backbone": {"pretrained": True}}, "backbone")
    assert not anew({"adapter": {"name": "lora", "rank": 4}}, "adapter.targets")
    assert anew({"capacities": {"by_client": [1]}}, "capacities")
    assert anew({"capacities": {"by_client": [1]}}, "capacities.uniform")
    assert anew({"train": {"regularizer": {"fedprox": 1.0}}}, "train.regularizer")
    assert anew({"train": {"regularizer": {"fedprox": 1.0}}}, "train.regularizer.feddyn")
    assert not anew({"train": {"rounds": 3}}, "train.regularizer.feddyn")


def test_a_dotted_key_is_a_nest_of_mappings():
    assert nest("a.b.c", Node.of(3, LOW), LOW).plain() == {"a": {"b": {"c": 3}}}
