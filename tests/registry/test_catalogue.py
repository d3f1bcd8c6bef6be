"""The catalogue: components by their signatures, clashes and lost plugins told, and a round trip through JSON."""

from __future__ import annotations

import json

import pytest

from fedbench.errors import UserError
from fedbench.registry.catalogue import KINDS, REQUIRED, Catalogue, Component


def make(setup, needed, rate: float = 0.5, names: list | None = None):
    """Does a thing
    in two lines.

    More about it.
    """


def described(kind="method", name="thing", make=make, plugin="p", package="some-package", **facts):
    return Component.of(kind, name, make, plugin, package, **facts)


def test_options_and_summary_come_from_the_signature_and_docstring():
    thing = described()
    assert thing.options == {"needed": REQUIRED, "rate": 0.5, "names": None}
    assert (thing.summary, thing.details) == ("Does a thing in two lines.", "More about it.")
    assert not thing.open and described(make=lambda setup, **more: None).open


def test_what_the_core_gives_is_no_option():
    def allocate(capacities, num_layers, generator, step: int = 1): ...

    assert described("allocation", make=allocate).options == {"step": 1}
    assert described("dataset", make=lambda image_size, draw=0: None).options == {"draw": 0}
    assert described("backbone", make=lambda pretrained=True, load=True: None).options == {"pretrained": True}


@pytest.mark.parametrize("wrong", [lambda *many: None, lambda setup, option=int: None])
def test_what_a_suite_could_not_express_is_refused(wrong):
    with pytest.raises(ValueError, match="many|option"):
        described(make=wrong)


def test_options_that_came_later_are_named_and_have_a_default():
    assert described(later=["rate"]).later == ["rate"] and described().later == []
    for wrong in (["rat"], ["needed"], ["setup"]):
        with pytest.raises(ValueError, match=f"has no option '{wrong[0]}' with a default, and names it in `later`"):
            described(later=wrong)


def test_a_name_of_two_packages_names_both_and_leaves_others_alone():
    catalogue = Catalogue()
    catalogue.add([described(), described(name="other"), described(plugin="q", package="second-package")])
    with pytest.raises(UserError, match="some-package.*second-package"):
        catalogue.find("method", "thing")
    assert catalogue.find("method", "other").package == "some-package"


def test_a_component_of_fedbench_keeps_its_name_but_for_a_file_of_the_user():
    catalogue, theirs = Catalogue(), [described(plugin="q", package=name) for name in ("second-package", "third")]
    for new in [described(package="fedbench"), *theirs]:
        catalogue.add([new])
    assert catalogue.find("method", "thing").package == "fedbench" and not catalogue.clashes
    assert [message.split(": ")[1] for message in catalogue.refusals()] == [
        f"fedbench (plugin p) and {one.package} (plugin q); the one of fedbench is used" for one in theirs
    ]
    assert not catalogue.refusals({("objective", "thing"), ("method", "other")})
    catalogue.add([described(plugin="mine.py", package="/home/mine.py")], by_user=True)
    with pytest.raises(UserError, match=r"fedbench \(plugin p\) and /home/mine.py .*; rename the latter"):
        catalogue.find("method", "thing")


def test_one_name_in_two_kinds_is_no_clash():
    catalogue = Catalogue()
    catalogue.add([described(), described(kind="objective", package="second-package")])
    assert not catalogue.clashes


def test_an_unknown_name_gets_the_nearest_and_in_short_the_plugins_that_were_lost():
    catalogue = Catalogue(broken={"p": "plugin 'p' of lost-package does not load: ImportError: no"})
    catalogue.add([described()])
    with pytest.raises(
        UserError, match=r"did you mean 'thing'\? Plugins that failed to load: p \(`fedbench plugins list"
    ):
        catalogue.find("method", "thin")
    with pytest.raises(
        UserError, match=r"known: thing; .* A plugin failed to load: plugin 'p' of lost-package does not"
    ):
        catalogue.find("method", "unlike")
    with pytest.raises(UserError, match="no objective is called 'thing'; known: none"):
        catalogue.find("objective", "thing")
    catalogue.broken |= dict.fromkeys("qrst", "a long story")
    with pytest.raises(
        UserError, match=r"failed to load: p, q, r and 2 more \(`fedbench plugins list --components` says"
    ):
        catalogue.find("method", "unlike")


def test_an_unknown_backbone_is_left_to_timm():
    catalogue = Catalogue()
    catalogue.add([described("backbone", "timm"), described("backbone", "micro")])
    assert catalogue.find("backbone", "vit_tiny_patch16_224").name == "timm"
    assert catalogue.find("backbone", "micro").name == "micro"


def read_back(catalogue: Catalogue) -> Catalogue:
    """A catalogue of the same components, as a cache keeps them."""
    again = Catalogue()
    again.add(Component.from_json(json.loads(json.dumps(component.to_json()))) for component in catalogue)
    return again


def test_json_brings_back_the_same_components():
    catalogue = Catalogue()
    catalogue.add([described(), described("allocation", make=lambda capacities: None, exact=False)])
    again = read_back(catalogue)
    assert again == catalogue
    assert not again.find("allocation", "thing").exact


def test_every_kind_has_built_in_components(registry):
    assert all(registry.catalogue.components[kind] for kind in KINDS)


def test_every_built_in_component_says_what_it_is(registry):
    assert not [component.name for component in registry.catalogue if not component.summary.endswith(".")]


@pytest.mark.parametrize("name", [3, None, "", "a\nb", "\ud800"])
def test_a_name_that_cannot_be_written_is_refused(name):
    with pytest.raises(ValueError, match="the name of a metric is a text"):
        Component.of("metric", name, lambda: None, "p", "p")


def test_facts_that_cannot_be_kept_are_refused():
    for profiles in ({"paper": {"x": object()}}, {1: {(2, 3): 4}}):
        with pytest.raises(ValueError, match="'profiles'"):
            Component.of("metric", "x", lambda: None, "p", "p", profiles=profiles)
    with pytest.raises(ValueError, match="no Source"):
        Component.of("metric", "x", lambda: None, "p", "p", source="https://example.org")
    with pytest.raises(ValueError, match="the role of the method 'x' is 'ceilin'; .*one of method, ceiling, floor"):
        Component.of("method", "x", lambda: None, "p", "p", role="ceilin")
    with pytest.raises(ValueError, match="the role of the metric 'x' is 'ceiling'"):
        Component.of("metric", "x", lambda: None, "p", "p", role="ceiling")
    for kind, said in (("metric", False), ("method", "no")):
        with pytest.raises(ValueError, match=f"{kind} 'x': `tunable` is True or False, and a method's to say"):
            Component.of(kind, "x", lambda: None, "p", "p", tunable=said)


def test_methods_have_the_role_they_register_and_those_of_the_benchmark_come_first():
    catalogue = Catalogue()
    for name, package, facts in (
        ("a", "other", {"role": "control"}), ("c", "fedbench", {"role": "ceiling"}), ("b", "fedbench", {}),
    ):  # fmt: skip
        catalogue.add([Component.of("method", name, lambda: None, "p", package, **facts)])
    assert list(catalogue.roles.items()) == [("b", "method"), ("c", "ceiling"), ("a", "control")]
    assert read_back(catalogue).roles == catalogue.roles


def test_ceilings_floors_and_controls_are_built_in(registry):
    apart = {name: role for name, role in registry.catalogue.roles.items() if role != "method"}
    names = ("exclusive", "exit_probe", "head_only", "local_only", "ova_lp", "pooled_probe", "zero_round")
    bounds = {"alllarge": "ceiling", "pooled": "ceiling", "allsmall": "floor", "majority": "constant"}
    assert apart == {**bounds, **dict.fromkeys(names, "control")}


def test_a_method_s_option_may_not_be_called_as_settings_of_its_own_are():
    def make(setup, train=None):
        """About it."""

    with pytest.raises(ValueError, match="has an option 'train', and a suite's entry says by that name"):
        Component.of("method", "mine", make, "plugin", "package")
    assert Component.of("objective", "mine", make, "plugin", "package").options == {"train": None}


def test_papers_are_kept_and_have_a_year():
    catalogue = Catalogue()
    facts = {"paper": "Su et al., FedRA, ECCV 2024, arXiv 2311.11227"}
    catalogue.add(
        [Component.of("method", name, lambda: None, "p", "p", **(facts if name == "a" else {})) for name in "ab"]
    )
    assert read_back(catalogue).papers == {"a": facts["paper"]}
    for wrong in ("Su et al., FedRA", "FedRA,\n2023", 2023):
        with pytest.raises(ValueError, match="is a citation on one line, with its year"):
            Component.of("method", "x", lambda: None, "p", "p", paper=wrong)


def test_every_built_in_method_that_is_not_our_own_control_or_centralised_training_cites_its_paper(registry):
    uncited = set(registry.catalogue.roles) - set(registry.catalogue.papers)
    assert {registry.catalogue.roles[name] for name in uncited - {"pooled"}} <= {"control", "constant"}
    assert {"head_only"} <= uncited and "exclusive" not in uncited
