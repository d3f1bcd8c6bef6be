"""pfl-research (Apple): its PyTorch model, FederatedAveraging and simulated backend, one process, users in turn."""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from work import CLIP, SGD, Update, Work

from fedbench.machine import cores

from . import held, layers_held, logits, lora_vit, torch_threads


@contextmanager
def pfl(work: Work, threads: int | None = None) -> Iterator[Callable[[], list[Update]]]:
    """Yields one round in this process, with as many torch threads as cores, which is torch's default.

    pfl has one model for all users. Which layers a user holds travels with its data set, as the keyword of `loss`;
    the tensors of the others get no gradient and so stay. Each user's difference is taken from the postprocessors,
    where a user's upload passes; pfl's own sum over users is left in place, as it cannot be turned off.
    """
    with _on_cpu(), torch_threads(threads or cores()):
        from pfl.aggregate.simulate import SimulatedBackend
        from pfl.algorithm.federated_averaging import FederatedAveraging
        from pfl.model.pytorch import PyTorchModel
        from pfl.stats import MappedVectorStatistics

        start = work.start()
        model = PyTorchModel(
            _user_model(work),
            functools.partial(torch.optim.SGD, momentum=SGD["momentum"], weight_decay=SGD["weight_decay"]),
            central_optimizer=torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0),  # the round ends before its use
        )
        uploads, users = _uploads(start, layers_held(work)), _users(work)
        backend = SimulatedBackend(training_data=users, val_data=users, postprocessors=[uploads])
        algorithm, context = FederatedAveraging(), _context(work)
        global_state = MappedVectorStatistics({f"vit.{name}": value for name, value in start.items()})

        def run() -> list[Update]:
            model.set_parameters(global_state)
            backend.gather_results(model, algorithm, central_context=context)
            return [uploads.of_user.pop(n) for n in range(len(work.depths))]

        yield run


@contextmanager
def _on_cpu() -> Iterator[None]:
    """Keeps pfl off a GPU, and undoes what importing it changes: how this process starts others, for one."""
    before = multiprocessing.get_start_method(allow_none=True)
    with mock.patch.dict(os.environ, PFL_PYTORCH_DEVICE="cpu"):
        try:
            import pfl.model.pytorch  # noqa: F401
        finally:
            multiprocessing.set_start_method(before, force=True)
        yield


def _user_model(work: Work) -> nn.Module:
    class UserModel(nn.Module):
        """What PyTorchModel asks of a module: `loss` and `metrics`."""

        def __init__(self):
            super().__init__()
            self.vit = lora_vit(work)

        def loss(self, x: Tensor, y: Tensor, layers: list[int]) -> Tensor:
            return F.cross_entropy(logits(self.vit, x, layers), y)

        def metrics(self, x: Tensor, y: Tensor, layers: list[int]) -> dict:
            return {}

    return UserModel()


def _users(work: Work):
    """Every user in turn, each with its images in memory; the same order every round."""
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import MinimizeReuseUserSampler

    users = {
        str(n): PyTorchTensorDataset(work.data(n), user_id=str(n), train_kwargs={"layers": layers})
        for n, layers in enumerate(layers_held(work))
    }
    return FederatedDataset(users.get, MinimizeReuseUserSampler(list(users)))


def _context(work: Work):
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.common_types import Population
    from pfl.context import CentralContext
    from pfl.hyperparam import NNTrainHyperParams

    clients = len(work.depths)
    return CentralContext(
        current_central_iteration=0,
        do_evaluation=False,
        cohort_size=clients,
        population=Population.TRAIN,
        algorithm_params=NNAlgorithmParams(1, evaluation_frequency=1, train_cohort_size=clients, val_cohort_size=0),
        model_train_params=NNTrainHyperParams(
            local_batch_size=work.batch,
            local_num_epochs=1,
            local_learning_rate=SGD["lr"],
            local_max_grad_norm=CLIP,
        ),
    )


def _uploads(start: Update, layers: list[list[int]]):
    from pfl.metrics import Metrics
    from pfl.postprocessor.base import Postprocessor

    class Uploads(Postprocessor):
        """Keeps every user's own tensors; pfl reuses the memory of the difference it passes here, so they are new."""

        def __init__(self):
            self.of_user: dict[int, Update] = {}

        def postprocess_one_user(self, *, stats, user_context):
            n = int(user_context.user_id)
            self.of_user[n] = {name: value + stats[f"vit.{name}"] for name, value in held(start, layers[n]).items()}
            return stats, Metrics()

    return Uploads()
