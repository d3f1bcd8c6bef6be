"""A catalogue of made-up and built-in names, and small suites to read against it."""

from __future__ import annotations

from fedbench.errors import UserError
from fedbench.registry.catalogue import REQUIRED, Catalogue, Component


def component(kind, name, profiles=None, open=False, later=(), takes=None, **options):
    about = (name, kind, f"plugin_{name}", "tests", f"about {name}", options, profiles or {}, open)
    return Component(*about, later=later, takes=takes or {})


def built_catalogue() -> Catalogue:
    catalogue = Catalogue()
    aggregator = {"name": "weighted_mean", "weights": "examples"}
    catalogue.add(
        [
            component("backbone", "micro_vit", pretrained=True),
            component("backbone", "micro_mixer", pretrained=True),
            component("backbone", "timm", pretrained=True),
            component("adapter", "lora", rank=8, alpha=8, dropout=0.0, targets="last_fc"),
            component("adapter", "houlsby", width=16, scale=1.0),
            component("dataset", "strokes6", classes=30, train_per_class=40, test_per_class=10, draw=0),
            component("dataset", "image_folder", root=REQUIRED, unreadable="fail"),
            component("partition", "by_domain", clients_per_domain=1),
            component("partition", "dirichlet", alpha=0.5, clients_per_domain=5),
            component("partition", "iid", clients=10),
            component("metric", "accuracy"),
            component("allocation", "random"),
            component("allocation", "strided", step=1),
            component("aggregator", "weighted_mean", weights="examples"),
            component("aggregator", "momentum", beta=0.2),
            component("objective", "cross_entropy", smoothing=0.0),
            component(
                "method",
                "fedra",
                {"reference": {"aggregator": {"weights": "uniform"}}},
                missing_layers="keep",
                allocation="random",
                aggregator=aggregator,
            ),
            component("method", "inclusivefl", {"reference": {"beta": 0.0}}, beta=0.2, own_last_layer=False),
            component(
                "method", "depthfl", {"reference": {"ramp": 500}}, ramp=None, objective={"name": "cross_entropy"}
            ),
            component("method", "allsmall", depth=None),
            component("method", "grown", later=["local", "head"], body="random", local=False, head=None),
            *(component("method", name) for name in ("alllarge", "head_only", "exclusive", "majority")),
            component("method", "anything", open=True),
        ]
    )
    return catalogue


class KnownFacts:
    """Twelve layers and six domains; counts how often it is asked."""

    def __init__(self):
        self.asked = []

    def num_layers(self, backbone):
        self.asked.append(backbone["name"])
        if backbone["name"] == "nowhere":
            raise UserError("the weights of nowhere are not to be had")
        return 12

    def domains(self, data):
        self.asked.append(data["name"])
        return ("solid", "outline", "texture", "dim", "clutter", "sketch")

    def refuses_size(self, backbone, size):
        return ""


SMALL = """\
suite: small
defaults:
  backbone: micro_vit
  data: strokes6
  capacities: [12, 10, 8, 6, 4, 3]
scenarios:
  skew: {}
methods: [fedra]
"""


def config(suite, **choice):
    return suite.points(**choice)[0].config
