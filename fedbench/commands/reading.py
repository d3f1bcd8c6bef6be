"""How commands read results that may be many: what was kept of them is believed, and a line says what takes long."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

from fedbench.commands.patience import Patience

if TYPE_CHECKING:
    from fedbench.results.kept import Keeping

VERIFY = click.option(
    "--verify", is_flag=True, help="Read and check every file anew, whatever is kept of a large folder."
)


@contextmanager
def uncollected() -> Iterator[None]:
    """While Python looks for no circles of objects: of many cells that takes a quarter of the time, and finds none."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def keeping(verify: bool = False) -> Iterator[Keeping]:
    """For `fedbench.results.examine`. Where a hundred cells or more have to be read, a line on stderr counts them."""
    from fedbench.results.kept import Keeping

    with ExitStack() as told:
        patience: list[Patience] = []

        def tell(done: int, of: int) -> None:
            if not patience:
                patience.append(told.enter_context(Patience("Reading results")))
            patience[0].tell(done, of)

        yield Keeping(not verify, tell)
