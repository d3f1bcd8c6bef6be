"""Local only: no federation. Every client trains by itself, the control that shows what sharing is worth to it."""

from __future__ import annotations

from fedbench import hookimpl
from fedbench.families import owndepth
from fedbench.families.aggregation import weighted_mean
from fedbench.families.layerwise import layerwise
from fedbench.families.regularizer import refuse_feddyn
from fedbench.method import Method, Ref, Setup


def local_only(setup: Setup, objective: Ref = "cross_entropy") -> Method:
    """Every client trains the adapters of its first L_n layers and a classifier on its own images, in the rounds it
    takes part in, and goes on from where it stopped: nothing but the frozen layers is ever sent. A control, not a
    method.

    The model of a client is its own, as deep as it was when it last trained; use `evaluation: {by: client}`. There is
    no global model: what answers in its place, and for a client that never came back, is the start, the adapters as
    they were drawn and a classifier that nobody has trained, which is no better than chance. A client whose work is
    lost has not kept it. Not applicable under FedDyn, which corrects a global model.
    """
    refuse_feddyn(setup, "corrects one global model, and local_only has none")
    mean_of_nothing = owndepth.remembering(weighted_mean)  # for nothing is sent
    return owndepth.answering(layerwise(setup, "prefix", mean_of_nothing, objective, keeps=("*",)))


@hookimpl
def fedbench_register_methods(register):
    register("local_only", local_only, ignores=["ranks", "widths"], role="control")
