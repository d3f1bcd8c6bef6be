"""Methods of a suite: what one takes from the method it extends, and options of its own."""

from __future__ import annotations

from made_up import SMALL, config


def test_a_method_extends_another_and_the_nearest_option_wins(suite_of):
    methods = """[
      {name: grandchild, extends: child, aggregator: momentum},
      {name: child, extends: fedra, missing_layers: cover, allocation: {name: strided, step: 2}},
      {name: fedra, aggregator: {weights: uniform}}]"""
    suite = suite_of(SMALL.replace("[fedra]", methods))
    assert suite.methods == ("grandchild", "child", "fedra")
    child, grandchild = (config(suite, methods=[label])["method"] for label in ("child", "grandchild"))
    assert child == {
        "name": "fedra",
        "missing_layers": "cover",
        "allocation": {"name": "strided", "step": 2},
        "aggregator": {"name": "weighted_mean", "weights": "uniform"},
    }
    assert grandchild == {**child, "aggregator": {"name": "momentum", "beta": 0.2}}


def test_a_refinement_without_a_name_refines_the_default_component(suite_of):
    suite = suite_of(SMALL.replace("[fedra]", "[{name: fedra, aggregator: {weights: uniform}}]"))
    assert config(suite)["method"]["aggregator"] == {"name": "weighted_mean", "weights": "uniform"}


def test_an_open_component_takes_any_option(suite_of):
    suite = suite_of(SMALL.replace("[fedra]", "[{name: anything, whatever: [1, {a: 2}]}]"))
    assert config(suite)["method"] == {"name": "anything", "whatever": [1, {"a": 2}]}


def rows(points):
    """label -> its options in the order of the points; of one variant."""
    assert {point.variant for point in points} == {""}
    return {point.method: point.config["method"] for point in points}


def test_what_is_set_of_a_method_becomes_a_row_next_to_it(suite_of):
    text = SMALL.replace("[fedra]", "[fedra, alllarge]")
    sets = ["methods.fedra.missing_layers=cover", "methods.fedra.aggregator={name: momentum, beta: 0.3}"]
    suite = suite_of(text, sets=sets)
    found = rows(suite.points())
    label = "fedra (missing_layers=cover, aggregator=momentum(beta=0.3))"
    assert list(found) == ["fedra", "alllarge", label]
    assert (found["fedra"]["missing_layers"], found[label]["missing_layers"]) == ("keep", "cover")
    assert found[label]["aggregator"] == {"name": "momentum", "beta": 0.3}
    assert list(rows(suite.points(methods=["alllarge"]))) == ["alllarge", label]


def test_a_row_of_the_command_line_goes_with_what_the_suite_says_of_its_method(suite_of):
    text = SMALL + "sweep: {methods.fedra.aggregator.weights: [examples, uniform]}\n"
    swept = suite_of(text, sets=["methods.fedra.missing_layers=cover"]).points()
    assert [(point.variant[-8:], point.config["method"]["aggregator"]["weights"]) for point in swept] == [
        ("examples", "examples"), ("examples", "examples"), ("=uniform", "uniform"), ("=uniform", "uniform"),
    ]  # fmt: skip
    assert [point.config["method"]["missing_layers"] for point in swept] == ["keep", "cover"] * 2
    chosen = suite_of(text, sets=["methods.fedra.aggregator.weights=uniform"]).points()  # of those that it tries
    assert [(point.method, point.config["method"]["aggregator"]["weights"]) for point in chosen] == [
        ("fedra", "uniform")
    ]


def test_methods_are_added_to_a_suite(suite_of, faults_of):
    suite = suite_of(SMALL, add=["alllarge,anything", "allsmall"])
    assert suite.methods == ("fedra", "alllarge", "anything", "allsmall")
    assert list(rows(suite.points(methods=["fedra"]))) == ["fedra", "alllarge", "anything", "allsmall"]
    varied = suite_of(SMALL, add=["anything"], sets=["methods.anything.whatever=1"])
    assert rows(varied.points())["anything (whatever=1)"] == {"name": "anything", "whatever": 1}
    assert faults_of(SMALL, add=["fedra", "alllarg", "zzz", "random"]) == [
        '--add fedra: this suite lists "fedra" already',
        '--add alllarg: no method is called "alllarg"; did you mean "alllarge"?',
        '--add zzz: no method is called "zzz"; a method in a file of yours needs --plugin FILE',
        '--add random: no method is called "random"; it is an allocation: --set methods.fedra.allocation=random adds '
        "a row with it",
    ]


def test_one_method_s_option_can_be_swept(suite_of):
    text = SMALL.replace("[fedra]", "[fedra, alllarge]")
    swept = suite_of(text + "sweep: {methods.fedra.aggregator.weights: [examples, uniform]}\n").points(
        methods=["fedra"]
    )
    assert [cell.config["method"]["aggregator"]["weights"] for cell in swept] == ["examples", "uniform"]
    assert swept[1].variant == "methods.fedra.aggregator.weights=uniform"


OWN = """[fedra,
  {name: small, extends: fedra, adapter: {rank: 4}, train: {optimizer: {lr: 0.1}}},
  {name: smaller, extends: small, adapter: {alpha: 2}, train: {clip: null}},
  {name: other, extends: fedra, adapter: {name: houlsby, width: 4}},
  {name: same, extends: fedra, adapter: {rank: 8}}]"""


def own(suite_of, text="", **options):
    """label -> its points, and (rank or width, alpha, lr, clip) of the first."""
    points = suite_of(SMALL.replace("[fedra]", OWN) + text, **options).points()
    by_label = {label: [p for p in points if p.method == label] for label in dict.fromkeys(p.method for p in points)}

    def told(config):
        adapter, train = config["adapter"], config["train"]
        return adapter.get("rank", adapter.get("width")), adapter.get("alpha"), train["optimizer"]["lr"], train["clip"]

    return by_label, {label: told(found[0].config) for label, found in by_label.items()}


def test_an_entry_brings_settings_of_its_own_over_everybodys(suite_of):
    points, told = own(suite_of)
    assert told == {
        "fedra": (8, 8, 0.01, 10.0),
        "small": (4, 8, 0.1, 10.0),
        "smaller": (4, 2, 0.1, None),
        "other": (4, None, 0.01, 10.0),
        "same": (8, 8, 0.01, 10.0),
    }
    everybodys = points["fedra"][0].config
    assert points["fedra"][0].shared is None and points["same"][0].shared is None
    assert points["same"][0].config == everybodys
    assert points["small"][0].shared == {key: everybodys[key] for key in ("adapter", "train")}
    assert points["other"][0].shared == {"adapter": everybodys["adapter"]}
    assert points["small"][0].config["method"] == everybodys["method"]


def test_own_settings_lie_above_sweeps_and_overlays_and_below_the_command_line(suite_of):
    points, told = own(suite_of, "sweep: {adapter.rank: [2, 3]}\n", data="embedded")
    assert [p.config["adapter"]["rank"] for p in points["fedra"]] == [2, 3]
    assert [p.config["adapter"]["rank"] for p in points["small"]] == [4, 4]
    assert told["small"][2] == 0.1 and told["fedra"][2] == 0.05 and told["other"][0] == 4
    _, told = own(suite_of, sets=["train.optimizer.lr=0.3", "methods.smaller.train.optimizer.lr=0.2", "adapter.rank=1"])
    assert [lr for _, _, lr, _ in told.values()] == [0.3, 0.3, 0.3, 0.3, 0.3, 0.2]
    assert list(told)[-1] == "smaller (train.optimizer.lr=0.2)"
    assert [size for size, *_ in told.values()] == [1, 1, 1, 4, 1, 1]
    _, told = own(suite_of, sets=["methods.smaller.train.optimizer.lr=0.2", "train.optimizer.lr=0.3"])
    assert told["smaller"][2] == 0.3


def test_own_settings_are_swept_unless_the_command_line_says_them_anew(suite_of):
    sweep = "sweep: {methods.small.adapter.rank: [1, 2]}\n"
    points, _ = own(suite_of, sweep)
    assert [p.config["adapter"]["rank"] for p in points["small"]] == [1, 2]
    assert [p.config["adapter"]["rank"] for p in points["smaller"]] == [4, 4]
    assert [p.variant for p in points["small"]] == [f"methods.small.adapter.rank={r}" for r in (1, 2)]
    points, _ = own(suite_of, sweep, sets=["adapter.rank=3"])
    assert [p.config["adapter"]["rank"] for p in points["small"]] == [3]
