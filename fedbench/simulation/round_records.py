"""The records of a cell: the rows of its tables, their totals beforehand, and the simulated time of its clients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from fedbench.devices.fitting import RoundSeconds, round_seconds
from fedbench.errors import UserError
from fedbench.families.aggregation import WEIGHTS
from fedbench.method import Method, State
from fedbench.models.backbone import Blocks, Plain
from fedbench.models.param_paths import trained_layers
from fedbench.results.columns import SIMULATED
from fedbench.results.scores import evaluated_rounds
from fedbench.seeding import generator, numpy_generator
from fedbench.simulation.evaluation import Answers, Deployment, Evaluation, Runnable, Score, Scored, offered_by
from fedbench.simulation.failure_reason import Diverged
from fedbench.simulation.faults import NOT_FINITE
from fedbench.simulation.federation import Federation
from fedbench.simulation.layer_effects import effects
from fedbench.simulation.privacy import PrivacyLoss
from fedbench.simulation.state import ClientStorage
from fedbench.types import GLOBAL, ClientCost, Cohort, Dataset, Report, Size, Uploads

Rows = list[dict[str, Any]]
Tables = Mapping[str, Rows]
LOOKED_AT = 10  # rounds, for how few clients may train a layer: plans draw their layers again
MOST_DEPLOYED = 100_000  # clients, each a row of deployed.parquet for every metric


class RoundRecords:
    """The rows of a cell's tables: a function for each table makes those of one round.

    t counts rounds from 0, their rows from 1. See docs/results.md for what the columns mean. Raises UserError where
    tables would have a row for each of more clients than MOST_DEPLOYED.
    """

    def __init__(self, config: Mapping[str, Any], dataset: Dataset, federation: Federation) -> None:
        self.dataset, self.federation, self.faults = dataset, federation, federation.faults
        self.T, evaluation = config["train"]["rounds"], config["evaluation"]
        self.evaluated = evaluated_rounds(self.T, evaluation["every"], evaluation.get("at"))
        self.weights, self.sized = _weights(config["method"]), evaluation.get("sizes", False)
        if self.sized and len(federation.clients) > MOST_DEPLOYED:
            raise UserError(
                f"evaluation.sizes: results say of each client what it can run, and of at most {MOST_DEPLOYED:,} "
                f"clients, not of {len(federation.clients):,}; leave it out, or register fewer"
            )
        self.clocked = Clock(config, federation)
        self.kept = ClientStorage.said(config)
        self.privacy_loss = PrivacyLoss(config.get("privacy"), self._sends)
        self.seed = config["seed"]

    def enter(self, tables: Tables, t: int, report: Report) -> Rows:
        """Enter a round into its tables; returns the rows of its clients. Raises Diverged."""
        self._recall(tables)
        report, fetched = self._charged(t, report)
        clients = self.rounds(t, report)
        tables["rounds"].extend(clients)
        tables["storage"].extend(self.storage(t, report, fetched))
        tables["privacy"].extend(self.privacy(t, clients, tables["rounds"]))
        tables["uploads"].extend(self.uploads(t, report))
        tables["exchange"].extend(self.exchange(t, report))
        tables["server"].extend(self.server(t, report))
        tables["clock"].extend(self.clock(t, report, clients))
        return clients

    def _recall(self, tables: Tables) -> None:
        """Know again what clients keep, where the cell was resumed."""
        if self.kept.of:
            return
        for row, stored in zip(tables["rounds"], tables["storage"], strict=False):  # of a cell without, there are none
            t, client = row["round"] - 1, row["client"]
            self.kept.keep(t, client, stored["fetched_layers"], self._seen(t, client, row["steps"]).tolist())

    def _seen(self, t: int, client: int, steps: int) -> np.ndarray:
        """The positions of the images whose features a client keeps after round t."""
        kept = steps if self.kept.features else 0
        return self.federation.trained_on(t, client, kept)

    def _charged(self, t: int, report: Report) -> tuple[Report, list[list[int]]]:
        """The report with what clients are charged that keep what never changes; by client, the layers that it lacked
        until now."""
        if not self.kept.is_used:
            return report, []
        costs, fetched = [], []
        steps = report.uploads.steps.tolist()
        for n, (client, cost) in enumerate(zip(report.cohort.ids, report.cost, strict=True)):
            held, seen = report.plan.M[n].nonzero().flatten().tolist(), self._seen(t, client, steps[n])
            cost, lacked = self.kept.charged(t, client, cost, held, seen)
            costs.append(cost)
            fetched.append(lacked)
        return replace(report, cost=costs), fetched

    def storage(self, t: int, report: Report, fetched: Sequence[list[int]]) -> Rows:
        """One row for each client of a round where clients keep what never changes. fetched: by client, the layers that
        it lacked until now."""
        return [
            {"round": t + 1, "client": client, "fetched_layers": own, "stored_bytes": self.kept.stored(client, cost)}
            for client, cost, own in zip(report.cohort.ids, report.cost, fetched, strict=False)
        ]

    def rounds(self, t: int, report: Report) -> Rows:
        """One row for each client of a round; `layers` are those it holds that have adapters. Raises Diverged."""
        up, cohort, rows = report.uploads, report.cohort, []
        trained, ranks = trained_layers(report.plan, up.r), report.plan.ranks
        for n, client in enumerate(cohort.ids):
            self._finite(t, report, n)
            cost, done = self.federation.charged(client, report.cost[n]), self._done(report, n)
            lines = _lines(report, n, done)
            work = self.federation.work(client, int(up.steps[n]))
            sent, refused = _sent(up, n), n in up.rejected
            rows.append(
                {
                    "round": t + 1,
                    "client": client,
                    "domain": self.dataset.domain_name(self.federation.clients[client].domain),
                    "capacity": int(cohort.capacities[n]),
                    "layers": [j for j in report.plan.M[n].nonzero().flatten().tolist() if up.r[j]],
                    "trained_layers": trained[n].nonzero().flatten().tolist(),
                    "rank": None if ranks is None else int((ranks[n] * report.plan.M[n]).max()),
                    "examples": int(cohort.num_examples[n]),
                    "steps": int(up.steps[n]),
                    "arrived": bool(up.arrived[n]),
                    "loss": float(up.loss[n]),
                    "bytes_down": sum(down for _, down, _ in lines),
                    "bytes_up": sum(up for _, _, up in lines),
                    "flops": cost.flops(*done, personal_images=work.personal_images(cost.personal_epochs)),
                    "memory_bytes": cost.memory_bytes,
                    "workspace_bytes": cost.workspace_bytes or None,
                    "seconds": float(up.seconds[n]),
                    **self.clocked.columns(t, client, cost, int(up.steps[n]), sent, refused),
                }
            )
        return rows

    def _finite(self, t: int, report: Report, n: int) -> None:
        """Raises Diverged where what the client at position n sent is no number, and no fault made it so."""
        up, client, loss = report.uploads, report.cohort.ids[n], float(report.uploads.loss[n])
        if _sent(up, n) and not math.isfinite(loss):
            raise Diverged(f"the training loss of client {client} in round {t + 1} is {loss}")
        if up.rejected.get(n) == NOT_FINITE and not self.faults.kind_of(t, client):
            raise Diverged(f"the update of client {client} in round {t + 1} is not finite")

    def privacy(self, t: int, own: Rows, so_far: Rows) -> Rows:
        """What the round has cost the client that sent most often; nothing where uploads have no noise."""
        return self.privacy_loss.rows(t, own, so_far)

    def _sends(self, row: Mapping[str, Any]) -> bool:
        """Whether the client of a row of rounds.parquet sent its work, also if that was refused or came too late."""
        client = row["client"]
        return self.faults.fate(row["round"] - 1, client, self.federation.steps(client)).arrives

    def uploads(self, t: int, report: Report) -> Rows:
        """One row for every upload that was spoilt or refused."""
        rows = []
        for n, client in enumerate(report.cohort.ids):
            kind = self.faults.kind_of(t, client) if n in report.uploads.spoilt else ""
            reason = report.uploads.rejected.get(n, "")
            if kind or reason:
                rows.append({"round": t + 1, "client": client, "corrupted": kind, "rejected": reason})
        return rows

    def exchange(self, t: int, report: Report) -> Rows:
        """One row for each kind of what crossed between clients and server."""
        moved: dict[str, tuple[int, int]] = {}
        for n in range(len(report.cohort)):
            for what, down, up in _lines(report, n, self._done(report, n)):
                before = moved.get(what, (0, 0))
                moved[what] = before[0] + down, before[1] + up
        return [{"round": t + 1, "what": what, "bytes_down": d, "bytes_up": u} for what, (d, u) in moved.items()]

    def server(self, t: int, report: Report) -> Rows:
        """One row where the server trains too."""
        served = [(n, cost.server) for n, cost in enumerate(report.cost) if cost.server]
        if not served:
            return []
        flops = sum(server.flops(*self._done(report, n)) for n, server in served)
        return [{"round": t + 1, "flops": flops, "memory_bytes": max(server.memory_bytes for _, server in served)}]

    def clock(self, t: int, report: Report, clients: Rows) -> Rows:
        """One row where the clients of a round have devices; clients: their rows of rounds.parquet."""
        if not clients or self.federation.devices is None:
            return []
        times = [RoundSeconds(*(row[name] for name in SIMULATED[:4])) for row in clients]
        sent = [_sent(report.uploads, n) for n in range(len(clients))]
        return [{"round": t + 1, "clients": len(clients), **self.clocked.row(times, sent)}]

    def layers(self, t: int, model: Blocks | Plain, before: State, after: State, report: Report) -> Rows:
        """One row for each layer that has adapters; of clients that send gradients, the rows of uploads are no models.
        before, after: the states around the round."""
        found = effects(model, before, after, report, self.weights) if isinstance(model, Blocks) else []
        if any(one.what == "gradients" and one.up for cost in report.cost[:1] for one in cost.sent):
            none = math.nan
            found = [replace(e, client_update_norm=none, aggregation_error=none, product_norm=none) for e in found]
        return [{"round": t + 1, **asdict(effect)} for effect in found]

    def eval(self, t: int, scores: Iterable[Score]) -> Rows:
        """One row for every score of the model after round t, here counted from 1."""
        return [
            {
                "round": t,
                "split": score.split.split,
                "domain": score.split.domain,
                "client": score.split.client,
                "metric": score.metric,
                "value": score.value,
                "examples": len(score.split.indices),
            }
            for score in scores
        ]

    def answers(self, t: int, evaluation: Evaluation, answers: Answers) -> Rows:
        """One row for every split and output of the models after round t, here counted from 1."""
        return commonest(t, evaluation, answers)

    def sizes(self, t: int, one: Runnable, scores: Iterable[Score]) -> Rows:
        """One row for every score of the model after round t, here counted from 1, at one of its sizes."""
        size, run = asdict(one.size), {"memory_bytes": one.memory, "alone": one.alone}
        rows = self.eval(t, scores)
        for row in rows:
            del row["split"]
        return [{**size, **run, **row} for row in rows]

    def deployed(self, t: int, deployment: Deployment, scores: Mapping[Size, Sequence[Score]]) -> Rows:
        """One row for each client that has test images and each metric, after round t, here counted from 1. scores: of
        the model at every size."""
        rows: Rows = []
        known = {size: Scored(found, self.dataset.domains) for size, found in scores.items()}
        for client in self.federation.clients:
            taken = deployment.taken_by(client.id)
            size: dict[str, Any] = asdict(taken.size) if taken else dict.fromkeys(("capacity", "rank", "width"))
            own = known[taken.size].of(client) if taken else {}
            device = self.federation.devices[client.id].name if self.federation.devices else ""
            domain = self.dataset.domain_name(client.domain)
            for metric in known[deployment.sizes[-1].size].of(client):
                row = {"round": t, "client": client.id, "domain": domain, "device": device, **size}
                rows.append({**row, "metric": metric, "value": own.get(metric, math.nan)})
        return rows

    def totals(self, method: Method, tested: int) -> dict[str, Any]:
        """What all rounds together will cost, known beforehand because every draw is seeded; of layers that are drawn
        to be trained, by one draw for all clients of a size.

        Args:
            method: whose costs these are.
            tested: images of one evaluation.

        Returns:
            Among others `fewest_holders`, the fewest clients that train the same layer in one of the first LOOKED_AT
            rounds; `images`, those of all training steps; `tested`, those of all evaluations, validation images too;
            and `simulated_seconds`, of all rounds, where clients have devices.
        """
        totals: dict[str, Any] = dict.fromkeys(("client_rounds", "images", "flops", "bytes_down", "bytes_up"), 0)
        totals["evaluations"] = len(self.evaluated)
        totals["tested"] = totals["evaluations"] * tested
        if self.sized:  # validation images are not, and not every size has a model: an upper bound
            totals["tested"] += len(offered_by(method, self.federation.scenario)) * tested
        storage, fewest = replace(self.kept, of={}), list[int]()
        for t in range(self.T):
            cohort, took, sent = self.clocked.cohort(t, method), [], []
            if method.allocates and len(cohort) and t < LOOKED_AT:
                holders = method.allocates(cohort, t, generator(self.seed, t, use="round")).sum(0)
                fewest += holders[holders > 0].tolist()
            for n, (client, cost) in enumerate(zip(cohort.ids, method.prices(cohort, t), strict=True)):
                if cost is None:
                    continue
                if storage.is_used:
                    rank = None if cohort.ranks is None else int(cohort.ranks[n])
                    held = method.holds(int(cohort.capacities[n]), t, rank) if method.holds else ()
                    cost, _ = storage.charged(t, client, cost, held, self._seen(t, client, int(cohort.steps[n])))
                steps, arrives = int(cohort.steps[n]), bool(cohort.arrives[n])
                work = self.federation.work(client, steps)
                lines = cost.exchange(work.images, work.last, arrives)
                totals["client_rounds"] += 1
                totals["images"] += work.images
                totals["flops"] += cost.flops(
                    work.images, work.last, arrives, work.personal_images(cost.personal_epochs)
                )
                totals["bytes_down"] += sum(down for _, down, _ in lines)
                totals["bytes_up"] += sum(up for _, _, up in lines)
                if self.federation.devices is not None:
                    took.append(self.clocked.times(t, client, cost, steps, arrives))
                    sent.append(arrives)
            if took:
                before = totals.get("simulated_seconds", 0.0)
                totals["simulated_seconds"] = before + self.clocked.row(took, sent)["duration"]
        return totals | ({"fewest_holders": min(fewest)} if fewest else {})

    def _done(self, report: Report, n: int) -> tuple[int, int]:
        """(images, last) of the client at position n; one whose work is lost has come to no last step."""
        work = self.federation.work(report.cohort.ids[n], int(report.uploads.steps[n]))
        return work.images, work.last if _sent(report.uploads, n) else 0


def _lines(report: Report, n: int, done: tuple[int, int]) -> list[tuple[str, int, int]]:
    """What crossed between the client at position n and the server, see `ClientCost.exchange`."""
    up = report.uploads
    return report.cost[n].exchange(*done, _sent(up, n), refused=n in up.rejected)


def _sent(uploads: Uploads, n: int) -> bool:
    """Whether the client at position n has sent its work, taken or refused."""
    return bool(uploads.arrived[n]) or n in uploads.rejected


def _weights(method: Mapping[str, Any]) -> str | None:
    """How a method weighs clients, as its aggregator or it itself says, None in words of its own; by examples where
    neither says anything."""
    aggregator = method.get("aggregator")
    weights = (aggregator if isinstance(aggregator, Mapping) else method).get("weights", "examples")
    return weights if weights in WEIGHTS else None


class Clock:
    """The simulated time of one cell. Every draw is a function of (seed, round, client), so all methods meet the same.

    A client takes bytes down / down, FLOPs / FLOP/s and bytes up / up of its device, one after the other, and waits in
    between while the server computes for it. A straggler computes `slowdown` times as long, and one that is not done by
    its deadline has computed until then: `deadline` times what its usual steps take. A client that drops out is missed
    at once.

    Attributes:
        jitter: the deviation of the logarithm of two factors with median 1, of its processor and of its network.
        wait_for: of how many clients, the fastest, the server takes the work; None for all.
    """

    def __init__(self, config: Mapping[str, Any], federation: Federation) -> None:
        self.federation, self.seed, self.precision = federation, config["seed"], config["precision"]
        given = config.get("devices") or {}
        self.jitter: float = given.get("jitter", 0.0)
        self.wait_for: int | None = given.get("wait_for")

    def cohort(self, t: int, method: Method) -> Cohort:
        """The clients of round t. Where the server waits for the fastest, the work of the others is lost to it: they
        have done it, and it does not arrive. Who is fastest follows from what the method charges beforehand."""
        cohort = self.federation.cohort(t)
        if self.wait_for is None or int(cohort.arrives.sum()) <= self.wait_for:
            return cohort
        arriving = {
            n: self.times(t, client, self.federation.keeps.steady(cost), int(cohort.steps[n])).total
            for n, (client, cost) in enumerate(zip(cohort.ids, method.prices(cohort, t), strict=True))
            if cost is not None and cohort.arrives[n]
        }
        arrives = cohort.arrives.clone()
        arrives[sorted(arriving, key=arriving.__getitem__)[self.wait_for :]] = False  # of equal ones the later client's
        return replace(cohort, arrives=arrives)

    def times(
        self, t: int, client: int, cost: ClientCost, steps: int, sent: bool = True, refused: bool = False
    ) -> RoundSeconds:
        """Of a client of round t that has done so many steps. sent: whether its work came; refused: whether the server
        would not have it."""
        devices, server, faults = self.federation.devices, self.federation.server, self.federation.faults
        assert devices is not None and server is not None  # only then is it asked for
        device, work, usual = devices[client], self.federation.work(client, steps), self.federation.work(client)
        personal_images, last = work.personal_images(cost.personal_epochs), work.last if sent else 0
        given = (work.images, last, self.precision, personal_images, sent, refused, steps)
        took = round_seconds(cost, device, server, *given)
        fate = faults.fate(t, client, self.federation.steps(client))
        compute = fate.slowdown * took.compute
        if fate.late:
            flops = cost.flops(usual.images, usual.last, personal_images=usual.personal_images(cost.personal_epochs))
            compute = faults.deadline * flops / device.flops_at(self.precision)
        processor, network = self._factors(t, client)
        return RoundSeconds(network * took.down, processor * compute, network * took.up, took.server)

    def columns(
        self, t: int, client: int, cost: ClientCost, steps: int, sent: bool, refused: bool
    ) -> dict[str, float | None]:
        """SIMULATED of a row of rounds.parquet; nulls where clients have no devices."""
        if self.federation.devices is None:
            return dict.fromkeys(SIMULATED)
        times, watts = self.times(t, client, cost, steps, sent, refused), self.federation.devices[client].watts
        energy = None if watts is None else watts * times.compute
        return dict(zip(SIMULATED, (*times, energy), strict=True))

    def row(self, times: Sequence[RoundSeconds], sent: Sequence[bool]) -> dict[str, float]:
        """What a round took, by the columns of clock.parquet: of its clients, and which of them sent their work.

        Clients work side by side. The server waits for all, or until it has the work of so many as it waits for; it is
        one machine, and what it computes for them one after the other takes its time too.
        """
        awaited = [one for one, came in zip(times, sent, strict=True) if came]
        if self.wait_for is None or len(awaited) < self.wait_for:
            awaited = list(times)
        duration = max(*(one.total for one in awaited), sum(one.server for one in awaited))
        busy = sum(min(one.down + one.compute + one.up, duration) for one in times)
        return {
            "duration": duration,
            "server_seconds": sum(one.server for one in times),
            "idle_share": 1 - busy / (len(times) * duration) if duration else 0.0,
        }

    def _factors(self, t: int, client: int) -> tuple[float, float]:
        """So many times longer than usual (its processor, its network)."""
        if not self.jitter:
            return 1.0, 1.0
        processor, network = numpy_generator(self.seed, t, client, "devices/jitter").standard_normal(2)
        return math.exp(self.jitter * processor), math.exp(self.jitter * network)


def commonest(t: int, evaluation: Evaluation, answers: Answers) -> list[dict[str, Any]]:
    """The rows of answers.parquet of the models after round t, counted from 1.

    The domains of a global model are counted together. Clients' own models are counted one by one, so that the share is
    1 only where each of them says the same of all its examples. A model whose examples are all of one class is left
    out: a good one answers with that class alone. Next tokens have no rows: a text has many answers.
    """
    if evaluation.of_tokens:
        return []
    personal = any(one.client != GLOBAL for one in evaluation.passes)
    parts: dict[tuple[str, int], list[int]] = {}  # by split and model, the positions of its splits
    for s, split in enumerate(evaluation.splits):
        parts.setdefault((split.split, split.client if personal else GLOBAL), []).append(s)
    found: dict[tuple[str, str], tuple[int, int]] = {}  # by split and output: examples, and those of the top answers
    for (name, _), positions in parts.items():
        chosen = [evaluation.splits[s] for s in positions]
        labels = np.concatenate([evaluation.images[name].labelled.y[split.indices] for split in chosen])
        if (labels == labels[0]).all():
            continue
        for output, logits in answers.items():
            said = torch.cat([logits[s].argmax(1) for s in positions])
            examples, top = found.get((name, output), (0, 0))
            found[name, output] = examples + len(said), top + int(said.bincount().max())
    return [
        {"round": t, "split": name, "output": output, "examples": examples, "top_share": top / examples}
        for (name, output), (examples, top) in found.items()
    ]
