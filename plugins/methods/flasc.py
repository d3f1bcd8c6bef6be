"""FLASC: sparse messages, dense local training (Kuo et al., 2024, arXiv 2406.05233)."""

from __future__ import annotations

from dataclasses import replace

from fedbench import hookimpl
from fedbench.families.aggregation import PLAIN_MEAN
from fedbench.families.layerwise import layerwise
from fedbench.method import Method, Ref, Setup
from fedbench.options import Share, judged


@judged("flasc")
def flasc(
    setup: Setup,
    dl_density: Share = 0.25,
    ul_density: Share = 0.25,
    allocation: Ref = "prefix",
    aggregator: Ref = PLAIN_MEAN,
    objective: Ref = "cross_entropy",
) -> Method:
    """Clients are sent the largest numbers of the adapters, train all of them, and send the largest of their updates;
    the server adds the mean.

    dl_density, ul_density: the shares of the numbers that go down and up, named as in the released code. With a mask of
    the largest |P| over all adapters of the server, client n starts from P * mask, trains to P_n and sends the largest
    of P_n - P * mask over all that it trains. Its classifier, which is sent down as it is, is among that. P <- P + the
    mean of what arrives. These are `train.uploads` and `train.downloads` with the codec `topk`, whatever the suite says
    of them, and are charged as such. The masked global model is not what is tested.

    The paper's text could not be read here; its released code (a fork, Erland366/flasc at 17c7063) was. Ours: the
    densities, which are 1 there; the server's step, which is AdamW on the mean update there; at least one number is
    sent; a client that holds some of the layers is sent the largest numbers of those.
    """
    codecs = {
        "downloads": {"codec": "topk", "density": dl_density},
        "uploads": {"codec": "topk", "density": ul_density},
    }
    sparse = replace(setup, train={**setup.train, **codecs})
    return layerwise(sparse, allocation, aggregator, objective)


@hookimpl
def fedbench_register_methods(register):
    register(
        "flasc",
        flasc,
        ignores=["ranks", "widths"],
        family="Aggregation",
        paper="Kuo et al., FLASC, 2024, arXiv 2406.05233",
    )
