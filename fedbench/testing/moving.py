"""Whether what clients send has an effect: a part of the model whose uploads are thrown away is never trained."""

from __future__ import annotations

from collections.abc import Sequence

from fedbench.method import State
from fedbench.models.places import matches, places, trained_by
from fedbench.testing.world import expect, same
from fedbench.types import Plan, Uploads

Step = tuple[State, State, Uploads, Plan]  # a round: the state before and after it, what came back, and by which plan

BOOKS = ("scores", "history")  # what is told of a round, and nothing that a model is made of
OF_PART = {"r": 'the adapters of the layers, state["r"],', "shared": 'what stands outside the layers, state["shared"],'}


def check_moves(steps: Sequence[Step], who: str) -> None:
    """Of `r` and `shared` none stays as it is in all of these rounds, though clients that arrived have changed it; one
    that keeps something elsewhere in the state, as a buffer does, may wait for longer. who: it is said of."""
    for part, name in OF_PART.items():
        sent = [step for step in steps if _is_changed(part, step)]
        thrown_away = sent and all(_stays(part, before, after) for before, after, *_ in sent)
        expect(
            not thrown_away,
            f"{who} leaves {name} unchanged in every round, though clients sent other values: their work is thrown "
            "away and paid for; return what is made of `uploads` there, or have nobody train and send it "
            "(`Plan.frozen`; `fixed` or `adapt=False` of `layerwise`)",
        )


def _is_changed(part: str, step: Step) -> bool:
    """Whether a client that arrived has sent something else of the part than the state had."""
    before, after, uploads, plan = step
    if part not in before or part not in after:
        return False
    old = dict(places({"r": [], "shared": {}, part: before[part]}))
    for place, rows in places({"r": [], "shared": {}, part: getattr(uploads, part)}):
        if place in old and not matches(place, plan.kept) and rows.shape[1:] == old[place].shape:
            came = rows[uploads.arrived[trained_by(plan, place)]]
            if (came != old[place]).any():
                return True
    return False


def _stays(part: str, before: State, after: State) -> bool:
    """Whether a part is the same after the round, and all else is too that the work may have gone into."""
    elsewhere = [
        {key: value for key, value in state.items() if key not in (*OF_PART, *BOOKS)} for state in (before, after)
    ]
    return same(before[part], after[part]) and same(*elsewhere)
