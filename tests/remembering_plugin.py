"""A --plugin file for tests: a method that the engine trains, and whose clients keep something for themselves."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from fedbench import hookimpl


def remembering(setup, slow: str = ""):
    """FedRA whose clients keep a running mean of the classifiers they trained, which every client's model has in place
    of the server's. It leaves `alone` as it is. slow: `first` or `others`, the processes that pause before they read
    what clients kept."""
    import torch

    from fedbench.families.layerwise import layerwise

    method, built_in = layerwise(setup), os.getpid()

    def init(generator):
        return {**method.init(generator), "clients": {}, "read": torch.zeros((), dtype=torch.float64)}

    def round(state, t, cohort, generator):
        new, report = method.round(state, t, cohort, generator)
        if slow and slow == ("first" if os.getpid() == built_in else "others"):
            time.sleep(0.2)
        clients, read, up = dict(state["clients"]), state["read"].clone(), report.uploads
        for n, client in enumerate(map(str, report.cohort.ids)):
            own = {name: rows[n] for name, rows in up.shared.items()}
            if client in clients:
                kept = setup.store.get(clients[client])
                read += sum(value.double().sum() for value in kept.values())
                own = {name: (value + kept[name]) / 2 for name, value in own.items()}
            clients[client] = setup.store.put(own)
        return {**new, "clients": clients, "read": read}, report

    def predictor(state, client=None):
        key = state["clients"].get(str(client))
        return method.predictor(state if key is None else {**state, "shared": setup.store.get(key)})

    return replace(method, init=init, round=round, predictor=predictor, personal=True, at=None)


@hookimpl
def fedbench_register_methods(register):
    register("remembering", remembering)
