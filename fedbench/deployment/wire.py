"""The messages between the server and a node: one safetensors file each way, its facts as JSON in the header."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from fedbench.models.backbone import Blocks
from fedbench.models.codec import codec_of
from fedbench.models.lowrank import Terms
from fedbench.models.param_paths import by_layer, holders, matches, places, started, trainers
from fedbench.simulation.coding import draw_down, draw_up, goes_down
from fedbench.types import Cohort, Exit, Job, Objective, Plan, Pull, Uploads

Facts = dict[str, Any]
Tensors = Mapping[str, Tensor]
# What the names of tensors begin with.
START, CODED, FROZEN, LINEAR, PLAN = "start:", "coded:", "frozen:", "linear:", "plan:"
OF_TERMS = ("terms", "trained_terms")  # fields of a plan
TYPES = frozenset(  # of tensors that may come back; not all others can be tested for non-finite values
    (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    + (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
)


class Malformed(ValueError):
    """A message that cannot be read, or does not hold what it should."""


def packed(facts: Facts, tensors: Tensors) -> bytes:
    """One message. It holds no pickle, so that reading it runs nothing."""
    own = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    return bytes(save(own, metadata={"facts": json.dumps(facts)}))


def unpacked(content: bytes) -> tuple[Facts, dict[str, Tensor]]:
    """The facts and the tensors of a message. Raises Malformed."""
    try:
        size = int.from_bytes(content[:8], "little")
        facts = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["facts"])
        tensors = load(content)
    except Exception as error:  # whatever a node sends
        raise Malformed(f"not a message of fedbench: {error}") from error
    if not isinstance(facts, dict):
        raise Malformed("not a message of fedbench: its facts are no object")
    return facts, tensors


def payload(tensors: Tensors, prefixes: Sequence[str] = (START, CODED, FROZEN, LINEAR)) -> int:
    """The bytes of the tensors whose names begin so: what the message is sent for."""
    return sum(value.nbytes for name, value in tensors.items() if name.startswith(tuple(prefixes)))


def content_hash(name: str, value: Tensor) -> str:
    """What a node files a frozen tensor of that name under: equal ones of two layers are sent for each."""
    array = value.detach().cpu().contiguous()
    found = hashlib.sha256(f"{name} {array.dtype} {tuple(array.shape)} ".encode())
    found.update(array.flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:32]


def frozen_weights(model: Blocks, layers: Collection[int]) -> dict[str, Tensor]:
    """The frozen parameters that a client with these layers holds: theirs, and all outside the layers."""
    found: dict[str, Tensor] = {}
    for name, parameter in model.model.named_parameters():
        kind, _, rest = name.partition(".")
        if not parameter.requires_grad and (kind != "blocks" or int(rest.partition(".")[0]) in layers):
            found[name] = parameter
    return found


def task_of(
    model: Blocks, start: Mapping[str, Any], plan: Plan, cohort: Cohort, job: Job, n: int
) -> tuple[Facts, dict[str, Tensor]]:
    """What the client at position n is to do in a round, and what it starts from: the coordinates that it holds.

    The model's frozen weights are not among it, see `frozen_weights`.
    """
    layers = plan.M[n].nonzero().flatten().tolist()
    tensors, coded = _begun(model, start, plan, job, n)
    pull = job.pull
    if pull is not None and pull.linear is not None:
        for place, rows in places(pull.linear):
            if n in (train := trainers(plan, place)):
                tensors[LINEAR + place] = rows[train.index(n)]
    for name in OF_TERMS:
        if (given := getattr(plan, name)) is not None:
            tensors[PLAN + name] = given[n][layers]
    facts = {
        "t": job.t,
        "seed": job.seed,
        "client": int(cohort.ids[n]),
        "steps": int(cohort.steps[n]),
        "examples": int(cohort.num_examples[n]),
        "layers": layers,
        "trained": None if plan.trained is None else plan.trained[n].nonzero().flatten().tolist(),
        "exits": [asdict(exit) for exit in plan.exits[n]],
        "frozen": list(plan.frozen),
        "fixed": list(plan.fixed),
        "fresh": list(plan.fresh),
        "scale": None if plan.scales is None else float(plan.scales[n]),
        "optimizer": dict(job.optimizer),
        "clip": job.clip,
        "uploads": job.uploads,
        "downloads": job.downloads,
        "coded": coded,
        "micro_batch": job.micro_batch,
        "checkpointing": job.checkpointing,
        "pull": None
        if pull is None
        else {
            "strength": pull.strength,
            "linear": pull.linear is not None,
            "tail": None if pull.tails is None else int(pull.tails[n]),
            "tail_strength": pull.tail_strength,
        },
    }
    return facts, tensors


def _begun(
    model: Blocks, start: Mapping[str, Any], plan: Plan, job: Job, n: int
) -> tuple[dict[str, Tensor], list[str]]:
    """What the client at position n begins with, as it crosses, and the places of what of it is coded, in order."""
    dims = {place: parameter.dim() for place, parameter in model.trained().items()}
    drawn, down, terms = (*plan.fixed, *plan.fresh), codec_of(job.downloads), Terms(model, plan)
    plain: dict[str, Tensor] = {}
    message: dict[str, Tensor] = {}
    for place, value in places(start):
        held = holders(plan, place)
        if n in held and not matches(place, drawn):
            dim = dims.get(place, value.dim())
            own, mask = value[held.index(n)] if value.dim() > dim else value, terms.held(place, [n], dim)
            is_coded = down is not None and goes_down(down, plan, place, value)
            (message if is_coded else plain)[place] = own if mask is None else own[mask[0].expand_as(own)]
    tensors = {START + place: own for place, own in plain.items()}
    if down is not None:
        crossed = down.encoded({place: own.cpu() for place, own in message.items()}, draw_down(job.seed, job.t))
        tensors |= {CODED + name: value for name, value in crossed.items()}
    return tensors, list(message)


def round_of(
    model: Blocks, facts: Facts, tensors: Tensors, drawn: Tensors, objective: Objective, batches: Iterable[Any]
) -> tuple[dict[str, Any], Plan, Cohort, Job]:
    """(start, plan, cohort, job) of a client alone, as its engine takes them, of what `task_of` made.

    drawn: by place, the tensors that the client draws itself.
    """
    plan = _plan_of(facts, tensors, model.num_layers)
    terms, start, linear = Terms(model, plan), {}, {}
    trained = model.trained()

    def held(place: str) -> Any:
        mask = terms.held(place, [0], trained[place].dim())
        return ... if mask is None else mask[0].expand_as(trained[place])

    sent = _of(START, tensors)
    if down := codec_of(facts["downloads"]):
        like = {place: trained[place].detach()[held(place)] for place in facts["coded"]}
        sent |= down.opened(_of(CODED, tensors), like)
    for place, parameter in trained.items():
        if place in sent:
            start[place] = torch.zeros_like(parameter)
            start[place][held(place)] = sent[place]
        elif place in drawn:
            start[place] = drawn[place]
        if (own := tensors.get(LINEAR + place)) is not None:
            linear[place] = own[None]
    given = facts["pull"]
    pull = given and Pull(
        given["strength"],
        by_layer(linear, model.num_layers) if given["linear"] else None,
        None if given["tail"] is None else torch.tensor([given["tail"]]),
        given["tail_strength"],
    )
    L_n, examples, steps = (
        torch.tensor([value]) for value in (len(facts["layers"]), facts["examples"], facts["steps"])
    )
    cohort = Cohort([facts["client"]], L_n, examples, steps, lambda n: iter(batches))
    how = (objective, pull, facts["micro_batch"], facts["checkpointing"])
    coded = {way: facts[way] for way in ("uploads", "downloads")}
    job = Job(facts["t"], facts["seed"], facts["optimizer"], facts["clip"], *how, **coded)
    return by_layer(start, model.num_layers), plan, cohort, job


def _plan_of(facts: Facts, tensors: Tensors, L: int) -> Plan:
    """The plan of a client alone."""
    layers = facts["layers"]

    def row(chosen: Sequence[int]) -> Tensor:
        one = torch.zeros(1, L, dtype=torch.bool)
        one[0, list(chosen)] = True
        return one

    def of_layers(name: str) -> Tensor | None:
        if (own := tensors.get(PLAN + name)) is None:
            return None
        whole = torch.zeros(1, L, own.shape[-1], dtype=torch.bool)
        whole[0, layers] = own
        return whole

    return Plan(
        row(layers),
        [[Exit(**exit) for exit in facts["exits"]]],
        None if facts["trained"] is None else row(facts["trained"]),
        of_layers("terms"),
        of_layers("trained_terms"),
        frozen=facts["frozen"],
        scales=None if facts["scale"] is None else torch.tensor([facts["scale"]], dtype=torch.float64),
    )


def _of(prefix: str, tensors: Tensors) -> dict[str, Tensor]:
    """Those whose names begin so, by what follows."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


@torch.no_grad()
def answer_of(uploads: Uploads, start: Mapping[str, Any], plan: Plan, cohort: Cohort, job: Job) -> dict[str, Tensor]:
    """What a client alone sends back: its loss, and of each tensor the coordinates that it has trained.

    Where messages are coded, either way, these are updates: the server has not what the client began with.
    """
    begun, sent, up = dict(places(start)), {}, codec_of(job.uploads)
    for place, rows in places({"r": uploads.r, "shared": uploads.shared}):
        if len(rows):
            mask = uploads.coordinates.get(place)
            row = rows if not (up or job.downloads) else rows - started(begun[place], plan, place, rows.dim() - 1)
            sent[place] = row[0] if mask is None else row[0][mask[0].expand_as(row[0])]
    if up is None:
        tensors = {START + place: value for place, value in sent.items()}
    else:
        own = {place: value.cpu() for place, value in sent.items()}
        coded = up.encoded(own, draw_up(job.seed, job.t, int(cohort.ids[0])))
        tensors = {CODED + name: value for name, value in coded.items()}
    return {**tensors, "loss": uploads.loss}


class Inbox:
    """The uploads of a round as they come in. Rows of clients that send nothing are what the server started from."""

    def __init__(self, model: Blocks, start: Mapping[str, Any], plan: Plan, cohort: Cohort, job: Job) -> None:
        self.cohort, self.num_layers = cohort, model.num_layers
        self.codec, self.are_updates = codec_of(job.uploads), bool(job.uploads or job.downloads)
        begun, terms, N = dict(places(start)), Terms(model, plan), len(cohort)
        self.senders = {place: trainers(plan, place) for place in model.trained()}
        self.rows = {
            place: started(begun[place], plan, place, parameter.dim()).clone()
            if self.senders[place]
            else parameter.detach().new_empty((0, *parameter.shape))
            for place, parameter in model.trained().items()
        }
        self.masks = terms.of_uploads(self.rows)
        self.order = [place for place, _ in places(by_layer(self.rows, self.num_layers))]  # of a message
        self.loss, self.seconds = (torch.full((N,), fill, dtype=torch.float64) for fill in (torch.nan, 0.0))
        self.came = torch.zeros(N, dtype=torch.bool)

    def put(self, n: int, tensors: Tensors, seconds: float) -> None:
        """Enter what the client at position n has sent. Raises Malformed where it is not what was asked for."""
        due = {}
        for place in self.order:
            if n in (senders := self.senders[place]):
                row, mask = self.rows[place][senders.index(n)], self.masks.get(place)
                due[place] = row, ... if mask is None else mask[senders.index(n)].expand_as(row)
        if "loss" not in tensors or tensors["loss"].shape != (1,) or not tensors["loss"].is_floating_point():
            raise Malformed("it has no loss")
        sent = {name: value for name, value in tensors.items() if name != "loss"}
        own = {place: row[at].cpu() for place, (row, at) in due.items()}
        came = self._opened(sent, own)
        for place, (row, at) in due.items():
            arrived = came[place].to(row.device)
            row[at] = row[at] + arrived if self.are_updates else arrived
        self.loss[n], self.seconds[n], self.came[n] = tensors["loss"][0].double(), seconds, True

    def _opened(self, sent: Tensors, like: Tensors) -> Tensors:
        """What arrives, by place. like: tensors as the plan asks for. Raises Malformed."""
        if self.codec is not None:
            try:
                return self.codec.opened({name.removeprefix(CODED): value for name, value in sent.items()}, like)
            except ValueError as error:
                raise Malformed(str(error)) from error
        if sent.keys() != {START + place for place in like}:
            raise Malformed("it holds other tensors than the plan asks for")
        came = _of(START, sent)
        for place, value in like.items():
            if came[place].shape != value.shape or came[place].dtype != value.dtype:
                raise Malformed(f"{place} has another shape or type than the plan asks for")
        return came

    def uploads(self) -> Uploads:
        """What has come in. A client whose work a fault of the scenario loses has sent it, and it does not arrive."""
        whole = by_layer(self.rows, self.num_layers)
        up = Uploads.of(self.cohort, **whole, loss=self.loss, seconds=self.seconds, coordinates=self.masks)
        up.arrived &= self.came
        return up
