"""fedbench doctor: what would stop a run, and the mend."""

from __future__ import annotations

import click

from fedbench.commands.choices import PLUGINS, RESULTS
from fedbench.words import counted


@click.command(short_help="Check this machine: what would stop a run, and the mend.")
@PLUGINS
@RESULTS
def doctor(plugins: tuple, results: str) -> None:
    """Check versions, devices, plugins, weights, folders and free disk; say what would stop a run, and the mend.

    \b
    fedbench doctor
    fedbench doctor --results /scratch/results --plugin mine.py

    Exit code: 0 all fine, 1 something would stop a run.
    """
    import sys

    from rich.text import Text

    from fedbench.commands.checkup import checkup
    from fedbench.commands.screen import Screen

    console = Screen()
    styles = {"ok": "green", "note": "yellow", "STOP": "red"}
    stops = 0
    for finding in checkup(plugins, results):
        stops += finding.level == "STOP"
        line = Text.assemble((f"{finding.level:5}", styles[finding.level]), f"{finding.what:9} {finding.found}")
        console.print(line, soft_wrap=True)
        if finding.mend:
            console.print(Text(f"{'':15}-> {finding.mend}"), soft_wrap=True)
    console.print(
        "Nothing would stop a run." if not stops else f"{counted(stops, 'thing')} would stop a run.", style="bold"
    )
    sys.exit(1 if stops else 0)
