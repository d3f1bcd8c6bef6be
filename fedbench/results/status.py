"""The words for how a cell stands: one vocabulary for manifests, events and whoever reads them."""

from __future__ import annotations

# Those of a manifest.
INTERRUPTED = "interrupted"
HALVED = "halved"  # a candidate of a tuning that was among the worse half so far; it could go on
STATUSES = ("running", "interrupted", "finished", "failed", "timeout", "not_applicable", HALVED)

ENDED = ("finished", "failed", "timeout", "not_applicable", HALVED)  # nobody is at the cell any more
KEPT = ("finished", "not_applicable")  # there is a result, which a run leaves as it is
GIVEN_UP = ("failed", "timeout")  # there is none, and a run tries again only when asked to
RAN = ("finished", "failed", "timeout")  # the cell took the seconds that its manifest says

# Those that stand in no manifest.
PENDING = "pending"  # not started
DAMAGED = "damaged"  # finished, but a file is missing or torn
TAKEN = "taken"  # by another run, from one that gave no sign of life
