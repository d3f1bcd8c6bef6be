"""What is recorded of a cell: its status and the columns of its tables, and what of it may be missing."""

from __future__ import annotations

from collections.abc import Mapping

# The status of a cell: first those of a manifest.
INTERRUPTED = "interrupted"
HALVED = "halved"  # a candidate of a tuning that was among the worse half so far; it could go on
STATUSES = ("running", "interrupted", "finished", "failed", "timeout", "not_applicable", HALVED)

ENDED = ("finished", "failed", "timeout", "not_applicable", HALVED)  # nobody is at the cell any more
KEPT = ("finished", "not_applicable")  # there is a result, which a run leaves as it is
GIVEN_UP = ("failed", "timeout")  # there is none, and a run tries again only when asked to
RAN = ("finished", "failed", "timeout")  # the cell took the seconds that its manifest says

# Those that no manifest has.
PENDING = "pending"  # not started
DAMAGED = "damaged"  # finished, but a file is missing or torn

COLUMNS: Mapping[str, Mapping[str, str]] = {
    # A row for each evaluated round x split x domain or client x metric. client -1 is the global model;
    # accuracy is a fraction.
    "eval": {
        "round": "int32",
        "split": "string",
        "domain": "string",
        "client": "int32",
        "metric": "string",
        "value": "float64",
        "examples": "int64",
    },
    # A row for each round x client that was asked to take part; arrived is False where its work was lost.
    # layers count from 0; those that it holds, and those that it trains. rank is null where all clients have one,
    # workspace_bytes where there is none to speak of.
    # The last five are simulated, and null where clients have no devices; energy also where a device has no watts.
    "rounds": {
        "round": "int32",
        "client": "int32",
        "domain": "string",
        "capacity": "int16",
        "layers": "list<int16>",
        "trained_layers": "list<int16>",
        "rank": "int16",
        "examples": "int64",
        "steps": "int32",
        "arrived": "bool",
        "loss": "float64",
        "bytes_down": "int64",
        "bytes_up": "int64",
        "flops": "int64",
        "memory_bytes": "int64",
        "workspace_bytes": "int64",
        "seconds": "float64",
        "down_seconds": "float64",
        "compute_seconds": "float64",
        "up_seconds": "float64",
        "server_seconds": "float64",
        "energy": "float64",
    },
    # A row for each round x layer that has adapters; layers count from 0. NaN where there is nothing to measure.
    "layers": {
        "round": "int32",
        "layer": "int16",
        "holders": "int32",
        "update_norm": "float64",
        "client_update_norm": "float64",
        "aggregation_error": "float64",
        "product_norm": "float64",
    },
    # A row for each round x kind of thing that crosses between clients and server; the bytes of all clients together.
    "exchange": {
        "round": "int32",
        "what": "string",
        "bytes_down": "int64",
        "bytes_up": "int64",
    },
    # A row for each round in which the server computes for clients: FLOPs in all, memory for one client. No file
    # without any.
    "server": {
        "round": "int32",
        "flops": "int64",
        "memory_bytes": "int64",
    },
    # A row for each round of clients that have devices: what it took as the server waits, simulated. No file without
    # any.
    "clock": {
        "round": "int32",
        "clients": "int32",
        "duration": "float64",
        "server_seconds": "float64",
        "idle_share": "float64",
    },
    # A row for each round x client where clients keep what never changes: the layers whose frozen weights it was sent,
    # from 0, and the bytes that it has kept. No file where they keep nothing.
    "storage": {
        "round": "int32",
        "client": "int32",
        "fetched_layers": "list<int16>",
        "stored_bytes": "int64",
    },
    # Where a suite asks for privacy, a row for each round: the epsilon by then of the client that sent most often. No
    # file without.
    "privacy": {
        "round": "int32",
        "epsilon": "float64",
    },
    # A row for each upload that a fault corrupted or the server refused; "" for neither. No file without any.
    "uploads": {
        "round": "int32",
        "client": "int32",
        "corrupted": "string",
        "rejected": "string",
    },
    # A row for each evaluated round x split x output of the model: the share of its commonest answer, 1 where it says
    # the same of every example; of clients' own models, of the commonest of each. Clients whose examples are of one
    # class are not counted, since they tell nothing.
    "answers": {
        "round": "int32",
        "split": "string",
        "output": "string",
        "examples": "int64",
        "top_share": "float64",
    },
    # Where a suite asks for it, a row for each size that a device could run of the model after the last round x domain
    # or client x metric. rank and width are null where sizes do not differ in them, memory_bytes where nobody knows;
    # alone is False where no device can answer without the server.
    "sizes": {
        "round": "int32",
        "capacity": "int16",
        "rank": "int16",
        "width": "float64",
        "memory_bytes": "int64",
        "alone": "bool",
        "domain": "string",
        "client": "int32",
        "metric": "string",
        "value": "float64",
        "examples": "int64",
    },
    # Beside that, a row for each client that has test images x metric: the size that it can run, nulls for none, and
    # what that scores on its images, NaN for none. device is "" where clients have none.
    "deployed": {
        "round": "int32",
        "client": "int32",
        "domain": "string",
        "device": "string",
        "capacity": "int16",
        "rank": "int16",
        "width": "float64",
        "metric": "string",
        "value": "float64",
    },
    # Where clients are real, a row for each round x client that was sent something: how it ended (`arrived`, or why
    # nothing came), the bytes of the tensors each way and of the messages that they were in, the seconds from sending
    # to receiving, those of them that the node worked and trained, and the CPU seconds of training. Nulls where nothing
    # came. No file without any.
    "wire": {
        "round": "int32",
        "client": "int32",
        "outcome": "string",
        "bytes_down": "int64",
        "bytes_up": "int64",
        "message_down": "int64",
        "message_up": "int64",
        "round_trip": "float64",
        "node_seconds": "float64",
        "train_seconds": "float64",
        "cpu_seconds": "float64",
    },
}

MEASURED = ("bytes_up", "message_up", "round_trip", "node_seconds", "train_seconds", "cpu_seconds")
SIMULATED = ("down_seconds", "compute_seconds", "up_seconds", "server_seconds", "energy")

NULLABLE = {
    "rounds": ("rank", "workspace_bytes", *SIMULATED),
    "sizes": ("rank", "width", "memory_bytes"),
    "deployed": ("capacity", "rank", "width"),
    "wire": MEASURED,
}

# Columns that came when results were kept already, and which column they are read as where a file is without them, None
# for nulls. They are no part of a content hash where they say no more than that.
LATER: Mapping[str, Mapping[str, str | None]] = {
    "rounds": {"trained_layers": "layers", "rank": None, "workspace_bytes": None, **dict.fromkeys(SIMULATED)}
}

# Tables that a cell is without where they would be empty.
ONLY_WITH_ROWS = ("server", "clock", "storage", "privacy", "uploads", "answers", "sizes", "deployed", "wire")

# Tables that came when results were kept already, or that say how a cell was computed and not what came of it: no part
# of a content hash, and the results of one cell agree where one of them has none.
UNHASHED = ("answers", "wire")
# Tables that older versions wrote and nothing reads: they are ignored, and deleted with the others of their cell.
DROPPED = ("right",)
# Tables that a checkpoint of an older fedbench is without.
CAME_LATER = ("clock", "storage", "privacy", "sizes", "deployed", *UNHASHED)

# What depends on the machine and the hour, and is left out when two results are compared for equality; also what an
# older fedbench did not write, where it follows from the rest: `left_out` and `doubts` from the data's fingerprint;
# whether a cell was computed or taken from one that is equal.
TIMINGS = {
    "eval": (),
    "rounds": ("seconds",),
    "layers": (),
    "exchange": (),
    "server": (),
    "clock": (),
    "storage": (),
    "privacy": (),
    "uploads": (),
    "answers": (),
    "sizes": (),
    "deployed": (),
    "wire": ("outcome", "bytes_down", "message_down", *MEASURED),
    "manifest": (
        "started",
        "seconds",
        "machine",
        "git",
        "traceback",
        "files",
        "digest",
        "tables",
        "torn",
        "left_out",
        "doubts",
        "root",
        "warnings",  # of cells that older versions computed
        "metrics",
        "method",
        "computed_as",
        "ignored",
        "deployed",  # where its clients were real
    ),
}
