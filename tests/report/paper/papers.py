"""A paper's numbers beside cells of its own setting, and what of both is shown."""

from __future__ import annotations

import io

from factories import eval_rows, write_cell
from rich.console import Console

from fedbench.report.layout import laid_out
from fedbench.report.paper import comparisons
from fedbench.report.style import show, style
from fedbench.report.views.paper import paper, side_by_side
from fedbench.results import load

VIT = "vit_base_patch16_224"
PAPER = {"fedra": (86.48, 91.92, 88.19), "depthfl": (79.79, 90.10, 82.07), "allsmall": (39.87, 40.57, 32.31)}


def numbers(paper=PAPER, **where):
    """Rows of expected.json: by method the average and two domains."""
    row = {"scenario": "skew", "variant": "", "dataset": "nicopp", "backbone": VIT, "rounds": 100, "source": "Table 1"}
    return [
        row | where | {"method": method, "metric": metric, "value_percent": value}
        for method, values in paper.items()
        for metric, value in zip(("average", "autumn", "dim"), values, strict=True)
    ]


def measure(folder, method, *by_seed, **changes):
    """Finished cells of the paper's own setting, unless `changes` say otherwise."""
    variant = changes.pop("variant", f"data=nicopp; backbone={VIT}.tag")
    own = {"backbone": {"name": f"{VIT}.tag", "pretrained": True}, "data__name": "nicopp", "train__rounds": 100}
    for seed, values in enumerate(by_seed):
        rows = eval_rows({100: dict(zip(("autumn", "dim"), values, strict=True))})
        rows += [r | {"split": "validation"} for r in rows if "evaluation__validation" in changes]
        write_cell(folder, method, seed, scenario="skew", variant=variant, evaluation=rows, **own | changes)


def compared(folder, **options):
    (found,) = comparisons(load([folder]), **options)
    return found


def cells(found):
    """{title: texts} of what is shown."""
    (page,) = laid_out(side_by_side([found])).pages
    return {column.title: [cell.text for cell in column.cells] for column in page.tables[0].columns}


def shown(found, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    show(side_by_side(found), console)
    return console.file.getvalue()


def rendered(found, format):
    return style((paper if format in ("csv", "json") else side_by_side)(found), format)


def around(found):
    """What stands around a comparison: the warning above it, and the remarks below."""
    (page,) = paper([found]).attrs["pages"]
    return page["above"], page["remarks"]
