"""`fedbench run` of whole suites here and at another commit, in turns; the command line stands at the end.

Each checkout runs its own copy of the suite, from images and prices that are there, into a folder that is empty: A B,
A B, ..., so that a machine whose speed drifts drifts for both. What is quoted are medians and their ratio.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from command import MAIN
from figures import Figures
from spending import spent
from test_grids import TRIVIAL, suite

HERE = Path(__file__).parents[1]
TRIVIAL_SEEDS = 10  # of two methods: twenty cells
Measured = Mapping[str, float]


class Installation:
    """A checkout, and the Python that it is installed for."""

    def __init__(self, root: Path, python: str, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.program, self.plugin = [python, *MAIN[1:]], root / "tests" / "tiny_plugin.py"
        folder.mkdir(parents=True)

    def run(self, name: str, *words: str) -> Measured:
        """The whole suite once."""
        trivial = name == "trivial"
        path = suite(self.folder, TRIVIAL, TRIVIAL_SEEDS) if trivial else self.root / "suites" / f"{name}.yaml"
        shutil.rmtree(self.folder / "r", ignore_errors=True)
        return spent(self.folder, "run", path, *words, program=self.program, plugin=self.plugin)


def line(name: str, key: str, here: Sequence[Measured], there: Sequence[Measured]) -> str:
    """Medians and ranges of one figure, and what part of there is needed here."""
    a, b = ([one[key] for one in runs] for runs in (here, there))
    ratio = statistics.median(a) / statistics.median(b)
    middle = f"{statistics.median(a):>9.1f}{statistics.median(b):>9.1f}{ratio:>7.2f}"
    return f"{name:<16}{key:<10}{middle}   {min(a):.1f} to {max(a):.1f}, {min(b):.1f} to {max(b):.1f}"


@click.command()
@click.argument("other", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("suites", nargs=-1, required=True)
@click.option("--pairs", type=click.IntRange(min=1), default=5, show_default=True)
@click.option(
    "--figures", type=click.Path(dir_okay=False, path_type=Path), help="Write every run to this file, as JSON."
)
def main(other: Path, suites: tuple[str, ...], pairs: int, figures: Path | None) -> None:
    """Time suites, or `trivial` for twenty cells of next to no work, against the checkout OTHER and its .venv.

    \b
    git clone . ../other && cd ../other && git checkout c23c262
    python3 -m venv .venv && .venv/bin/pip install -e . && cd -
    PYTHONPATH=tests python benchmarks/revisions.py ../other quickstart trivial
    """
    measured = Figures()
    click.echo(f"{'medians':<26}{'here':>9}{'there':>9}{'ratio':>7}   here, there: from, to")
    with tempfile.TemporaryDirectory() as scratch:
        theirs = str(other.resolve() / ".venv" / "bin" / "python")
        both = {
            "here": Installation(HERE, MAIN[0], Path(scratch, "here")),
            "there": Installation(other.resolve(), theirs, Path(scratch, "there")),
        }
        for name in suites:
            found: dict[str, list[Measured]] = {which: [] for which in both}
            for one in both.values():  # images, prices, files in memory
                one.run(name, *([] if name == "trivial" else ["--set", "train.rounds=1"]))
            for _ in range(pairs):
                for which, one in both.items():
                    found[which].append(one.run(name))
            lines = [line(name, key, found["here"], found["there"]) for key in ("seconds", "processor", "mib")]
            most = max(one["others"] for runs in found.values() for one in runs)
            lines.append(f"{name:<16}others had at most {most:.0%}")
            click.echo("\n".join(lines))
            measured.add(name, found, lines)
            if figures:
                measured.write(figures)


if __name__ == "__main__":
    main()
