"""Where data are here whose root a source names.

The root is part of a cell's identity and stays as it is; what it means is a matter of this machine. A results folder
says where a relative one was. A page does not, and is a stranger's: of its own it leads to nothing but what lies in the
current folder, and a root that leads elsewhere is read where the command says so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedbench.data.sources import relative_root
from fedbench.errors import UserError
from fedbench.reproduction.told import Told
from fedbench.words import counted, shortened, visible


def places(cells: Sequence[Told], given: Sequence[str] = ()) -> dict[str, str]:
    """The whole path of each root that these cells name. given: `DIR` of the only root, or `THERE=DIR`, as on the
    command line. Raises: UserError for one that is not here, or that only the command may say."""
    named: dict[str, list[Told]] = {}
    for cell in cells:
        data = cell.config["data"]  # of a stranger, and not read yet
        if isinstance(data, Mapping) and isinstance(root := data.get("root"), str) and root:
            named.setdefault(root, []).append(cell)
    said = _said(given, named)
    found, faults = {}, []
    for root, those in named.items():
        try:
            found[root] = said[root] if root in said else _place(root, those)
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise UserError("\n".join(faults))
    return found


def _said(given: Sequence[str], named: Mapping[str, object]) -> dict[str, str]:
    """By root, what --root says of it. Raises: UserError."""
    said: dict[str, str] = {}
    for text in given:
        there = next((root for root in named if text.startswith(f"{root}=")), None)
        if there is None and len(named) != 1:
            roots = f"{counted(len(named), 'root')}: {shortened(list(map(visible, named)))}" if named else "no root"
            raise UserError(f"--root {text}: say THERE=DIR; SOURCE names {roots}")
        here = text if there is None else text.removeprefix(f"{there}=")
        place = os.path.join(os.getcwd(), os.path.expanduser(here))
        if not os.path.exists(place):
            raise UserError(f"--root {text}: {place} does not exist")
        said[there or next(iter(named))] = place
    return said


def _place(root: str, cells: Sequence[Told]) -> str:
    """Where it is that --root says nothing of. Raises: UserError."""
    way = f"say where the data are: --root {visible(root)}=DIR"
    relative = relative_root({"root": root}) is not None
    if any(cell.root is None for cell in cells) and (not relative or ".." in Path(root).parts):
        raise UserError(f"SOURCE names data in {visible(root)}, which a page is not followed to; {way}")
    here = os.path.join(os.getcwd(), os.path.expanduser(root))
    there = {cell.root for cell in cells if relative and cell.root and os.path.exists(cell.root)}
    if len(there) > 1:
        raise UserError(
            f"SOURCE means several folders by {visible(root)}, such as {' and '.join(sorted(there)[:2])}; {way}"
        )
    place = next(iter(there), here)
    if not os.path.exists(place):
        raise UserError(f"SOURCE names data in {visible(root)}, and {visible(place)} does not exist; {way}")
    return place
