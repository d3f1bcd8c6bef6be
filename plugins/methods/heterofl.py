"""HeteroFL: clients train the first units of every layer, as many as they can hold (Diao et al., ICLR 2021, arXiv
2010.01264)."""

from __future__ import annotations

from fedbench import hookimpl
from fedbench.families.width import PLAIN_MEAN, RATES, Rates, averaged_slices, first
from fedbench.method import Method, Ref, Setup
from fedbench.models.weight_init import Begin
from fedbench.options import judged


@judged("heterofl")
def heterofl(
    setup: Setup,
    rates: Rates = RATES,
    body: Begin = "pretrained",
    aggregator: Ref = PLAIN_MEAN,
    objective: Ref = "cross_entropy",
    scale: bool = True,
    mask: bool = True,
) -> Method:
    """A client of rate g trains the first ceil(K g) of K hidden units of every layer, of every head the first
    ceil(d_head g); every coordinate becomes the unweighted mean over the clients that hold it, and one that nobody
    holds keeps its value (Section 3, Algorithm 1).

    rates: the widths offered; a client takes the largest it can hold: up to its width where the scenario gives
    `widths`, else with g^2 at most L_n / L; one that can hold none takes no part. `rates: [1]` is the control in which
    full models alone take part. body: `pretrained`, as the backbone is, or `random`; the paper trains from scratch.
    scale: the Scaler, outputs of hidden layers divided by g in training alone. mask: the masking trick, logits of
    classes that a client has no image of are 0 in its training (0, and not minus infinity, in the paper's code), and
    its rows of the classifier are not averaged.

    The paper's static batch norm has no use here: no backbone keeps running statistics. Ours: group norms normalise
    every group of the whole model over those of its channels that are held; the code keeps the number of groups. The
    global model is that of full width.
    """
    return averaged_slices(setup, "heterofl", first, rates, body, aggregator, objective, scale, mask)


@hookimpl
def fedbench_register_methods(register):
    register(
        "heterofl", heterofl, ignores=["ranks", "adapter"], paper="Diao et al., HeteroFL, ICLR 2021, arXiv 2010.01264"
    )
