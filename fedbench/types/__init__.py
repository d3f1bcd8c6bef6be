"""The nouns that the parts of fedbench hand to each other, with their shapes."""

from fedbench.types.client_cost import ClientCost, Frozen, Sent, ServerCost
from fedbench.types.clients import GLOBAL, SIZES, Client, Clients, Cohort, Device, Scenario, Size, assignment
from fedbench.types.dataset import CLASSIFICATION, MIXED, NEXT_TOKEN, Dataset, Images, Splits, Texts
from fedbench.types.metric import SummedMetric
from fedbench.types.round import Exit, Job, Objective, Plan, Pull, Report, Uploads

__all__ = [
    "CLASSIFICATION",
    "GLOBAL",
    "MIXED",
    "NEXT_TOKEN",
    "SIZES",
    "Client",
    "ClientCost",
    "Clients",
    "Cohort",
    "Dataset",
    "Device",
    "Exit",
    "Frozen",
    "Images",
    "Job",
    "Objective",
    "Plan",
    "Pull",
    "Report",
    "Scenario",
    "Sent",
    "ServerCost",
    "Size",
    "Splits",
    "SummedMetric",
    "Texts",
    "Uploads",
    "assignment",
]
