"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import glob
import math
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from fedbench.disk import at_home
from fedbench.errors import UserError
from fedbench.suite.shipped import ENDING, found, names
from fedbench.words import amount_of

LOOKED_UP = "fedbench.results"  # under which click's context keeps the folder in which names are looked up


class FilePath(click.Path):
    """A path, `~` being the home folder also where no shell says so: `--results=~/x`, `--results '~/x'`."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """The path as it is, but for the home folder. Raises UserError where nobody has such a home."""
        return super().convert(at_home(value), parameter, context)


class SuiteFile(FilePath):
    """A suite's file, or the name of a suite that ships with fedbench, see `fedbench.suite.shipped.found`."""

    name = "suite"

    def __init__(self) -> None:
        super().__init__(dir_okay=False)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """The path as `FilePath` has it. Refuses a folder, and names the suite in it."""
        if os.path.isdir(value := at_home(value)):
            inside = sorted(glob.glob(os.path.join(glob.escape(value), "*.yaml")))
            self.fail(f"{value} is a folder{f'; did you mean {inside[0]}?' if inside else ', and no suite'}")
        return super().convert(value, parameter, context)

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete to shipped suites, or to any file."""
        shipped = [CompletionItem(name) for name in names() if name.startswith(incomplete)]
        return shipped or super().shell_complete(context, parameter, incomplete)


def results_of(given: str, folder: str) -> str:
    """The results that a user means by a name or a path: the suite of that name in a results folder, else the path.

    Args:
        given: The name of a suite's folder, a suite's file or shipped name, or a path.
        folder: The results folder.
    """
    given = at_home(given)
    if not os.path.dirname(given) and given not in (".", "..") and os.path.isdir(inside := os.path.join(folder, given)):
        return inside
    if (
        not os.path.isdir(given)
        and (name := _suite_named(given))
        and os.path.isdir(inside := os.path.join(folder, name))
    ):
        return inside
    return given


def _suite_named(given: str) -> str | None:
    """What a suite calls itself, by its file or shipped name; None for anything else."""
    from fedbench.suite.yaml import Problems, read  # with ruamel.yaml, which takes a while

    shipped = given.removeprefix("./").removeprefix("suites/").removesuffix(ENDING)
    file = given if given.endswith(ENDING) and os.path.isfile(given) else names().get(shipped)
    if file is None:
        return None
    name = read(str(file), Problems()).get("suite")
    return name.value if name is not None and isinstance(name.value, str) else None


class ResultsPath(FilePath):
    """Results by a path, or by the name of their suite, see `results_of`."""

    name = "path"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """The path of the results. Raises UserError where nobody has such a home."""
        folder = context.meta.get(LOOKED_UP, "results") if context else "results"
        return super().convert(results_of(value, folder), parameter, context)


def _remember_results(context: click.Context, parameter: click.Parameter, folder: str) -> None:
    context.meta[LOOKED_UP] = folder


def _or_all_results(context: click.Context, parameter: click.Parameter, paths: tuple[str, ...]) -> tuple[str, ...]:
    """The paths that are given, or all results."""
    return paths or (context.meta[LOOKED_UP],)


def takes(*parameters: Callable[[Callable], Callable]) -> Callable[[Callable], Callable]:
    """A decorator that adds these options and arguments to a command, in this order."""

    def decorate(command: Callable) -> Callable:
        for parameter in reversed(parameters):
            command = parameter(command)
        return command

    return decorate


def of_suite(key: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """A completion by the names under `key` (`scenarios` or `methods`) of the suite on the command line.

    The suite is read without being checked: a key press cannot wait for that. Whatever goes wrong offers nothing.
    """

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        from fedbench.suite.yaml import Problems, read  # with ruamel.yaml, which takes a while

        # Behind an option whose value is being typed, click holds the arguments among what is left to parse.
        given = context.params.get("suite") or next(iter(context.args), "")
        try:
            entries = read(found(given), Problems()).plain()[key]
            names = [entry["name"] if isinstance(entry, dict) else entry for entry in entries]
        except Exception:  # a suite half written, or none: the command itself says what is wrong
            return []
        return [name for name in names if name.startswith(incomplete)]

    return complete


class ComputeDevice(click.ParamType):
    """`auto`, `cpu`, `cuda` or `cuda:1`."""

    name = "device"

    def convert(self, value: str, param: click.Parameter | None, context: click.Context | None) -> str:
        """The same. Fails for anything else."""
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", value):
            self.fail(f"{value!r:.40} is none of auto, cpu, cuda and cuda:N.", param, context)
        return value


def each(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """The names of an option that may be given several times, or once with commas; those in brackets divide nothing."""
    parts = (part for one in given for part in re.split(r",(?![^()\[\]{}]*[)\]}])", one))
    return tuple(part.strip() for part in parts if part.strip())


def _seeds(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[int, ...]:
    """As `each`, of whole numbers. Raises UserError."""
    found = []
    for text in each(context, parameter, given):
        if not re.fullmatch(r"-?[0-9]{1,18}", text):
            raise UserError(f"--seed {text}: expected a whole number, or several with commas, such as 0,1,2")
        found.append(int(text))
    return tuple(found)


def _refusing(option: str, message: str) -> Callable[[Callable], Callable]:
    """A hidden option: given, with a value or without, it ends the command with a message, in which VALUE stands for
    its value."""

    def refuse(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise UserError(message.replace("VALUE", value or "..."))

    name = f"refused_{option.strip('-').replace('-', '_')}"
    return click.option(option, name, hidden=True, expose_value=False, callback=refuse, is_flag=False, flag_value="")


def hint(option: str, instead: str) -> Callable[[Callable], Callable]:
    """An option that people expect and that there is not. instead: what there is; VALUE is what was given."""
    return _refusing(option, f"{option} VALUE: there is no such option; {instead}")


def gone(option: str, instead: str) -> Callable[[Callable], Callable]:
    """An option that is no more. instead: what replaces it."""
    return _refusing(option, f"{option} is gone: {instead}")


SUITE = click.argument("suite", type=SuiteFile())
RESULTS = click.option(
    "--results", default="results", show_default=True, type=FilePath(), metavar="DIR", help="The folder of results."
)
PLUGINS = click.option(
    "--plugin",
    "plugins",
    multiple=True,
    type=FilePath(),
    metavar="FILE",
    help="A .py file with your own plugin.",
)
DEVICE = click.option(
    "--device",
    type=ComputeDevice(),
    metavar="auto|cpu|cuda|cuda:N",
    default="auto",
    show_default=True,
    help="What computes: auto (GPUs if this machine has any), cpu, cuda (each cell on one GPU in turn), or cuda:N.",
)
JOBS = click.option(
    "--jobs",
    default="auto",
    show_default=True,
    metavar="auto|N",
    help="How many cells run at one time; auto: one for each core.",
)


def _format(*more: str, help: str) -> Callable[[Callable], Callable]:
    forms = click.Choice(["rich", "csv", "json", "markdown", "latex", *more])
    return click.option("--format", "form", type=forms, default="rich", show_default=True, help=help)


FORM = _format(help="The format of the output.")
FORM_OR_BIBTEX = _format("bibtex", help="The format of the output; bibtex: the papers that the methods are from.")


def output(metavar: str, help: str, default: str | None = None) -> Callable[[Callable], Callable]:
    """The option that says where a command writes to, as the parameter `out`. metavar: `FILE` or `DIR`."""
    return click.option(
        "--output",
        "-o",
        "out",
        type=FilePath(dir_okay=metavar == "DIR"),
        metavar=metavar,
        default=default,
        show_default=default is not None,
        help=help,
    )


# For commands that read results.
PATHS = takes(
    click.argument("paths", nargs=-1, type=ResultsPath(), metavar="[PATH]...", callback=_or_all_results),
    click.option(
        "--results",
        default="results",
        show_default=True,
        type=FilePath(),
        metavar="DIR",
        is_eager=True,  # paths are looked up there
        expose_value=False,
        callback=_remember_results,
        help="Where a PATH that is the name of a suite is looked up first.",
    ),
)
METRIC = click.option("--metric", default="accuracy", show_default=True, metavar="M", help="The metric to compare.")
BASELINE = click.option(
    "--baseline",
    metavar="METHOD",
    help="The method that gaps are measured from; by default a ceiling, if there is one.",
)
SELECTION = (
    click.option("--scenario", "scenarios", multiple=True, metavar="GLOB", help="Only these scenarios."),
    click.option("--method", "methods", multiple=True, metavar="NAME,...", callback=each, help="Only these methods."),
    click.option("--variant", "variants", multiple=True, metavar="GLOB", help="Only these sweep points."),
    click.option("--seed", "seeds", multiple=True, metavar="N,...", callback=_seeds, help="Only these seeds."),
)


# Which cells of a suite, and with which settings.
cells = takes(
    click.option(
        "--scenario",
        "scenarios",
        multiple=True,
        metavar="GLOB",
        shell_complete=of_suite("scenarios"),
        help="Only these scenarios, e.g. 'all_*'.",
    ),
    click.option("--variant", "variants", multiple=True, metavar="GLOB", help="Only these sweep points."),
    click.option(
        "--method",
        "methods",
        multiple=True,
        metavar="NAME,...",
        callback=each,
        shell_complete=of_suite("methods"),
        help="Only these methods of the suite.",
    ),
    click.option(
        "--seed", "seeds", multiple=True, metavar="N,...", callback=_seeds, help="These seeds instead of the suite's."
    ),
    hint("--rounds", "say --set train.rounds=VALUE"),
    hint("--lr", "say --set train.optimizer.lr=VALUE"),
    hint("--seeds", "say --seed VALUE"),
    hint("--methods", "say --method VALUE"),
    click.option(
        "--add", "add", multiple=True, metavar="NAME,...", help="Also these methods, e.g. one from your file."
    ),
    click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override a setting, e.g. train.rounds=3; methods.NAME.OPTION=VALUE adds a row next to that method.",
    ),
    click.option(
        "--profile", type=click.Choice(["paper", "reference"]), help="Follow a paper's text, or its released code."
    ),
    click.option("--data", metavar="NAME", help="Replace the data by NAME: an overlay or a data set, e.g. embedded."),
    PLUGINS,
)


class Bytes(click.ParamType):
    """Bytes: `600MB`, `4GB` or `3.5 GiB`."""

    name = "SIZE"

    def convert(self, value: str | int, *_: object) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?) ?([KMGT])(i?)B", value.strip(), re.IGNORECASE | re.ASCII)
        unit = (1024 if found[3] else 1000) ** ("KMGT".index(found[2].upper()) + 1) if found else 0
        if not (found and (count := int(float(found[1]) * unit))):
            raise UserError(f"--memory-limit: expected a size such as 600MB or 4GB, got {value!r}")
        return count


class Shard(click.ParamType):
    """`I/N` as (I, N), the I-th of N parts."""

    name = "I/N"

    def convert(self, value: str, *_: object) -> tuple[int, int]:
        part, parts = (whole(text) for text in value.partition("/")[::2])
        if not 1 <= part <= parts:
            raise UserError(f"--shard: expected I/N with I from 1 to N, such as 1/4, got {value!r:.80}")
        return part, parts


class Amount(click.FloatRange):
    """A number of a range, within which click would take nan and inf too."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        number = super().convert(value, param, context)
        return number if math.isfinite(number) else self.fail(f"{value!r} is no amount.", param, context)


class Duration(click.ParamType):
    """Seconds: `90`, `90s`, `5min` or `1h 30min`. zero: whether `0` is one."""

    name = "DURATION"

    def __init__(self, zero: bool = False) -> None:
        self.zero = zero

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        """The seconds. Raises UserError for what is no length of time."""
        try:
            return 0.0 if self.zero and str(value).strip() in ("0", "0s") else amount_of(str(value), "seconds")
        except ValueError as error:
            raise UserError(f"{param.opts[0] if param else self.name}: {error}") from None


TIMEOUT = click.option(
    "--timeout",
    metavar="DURATION",
    type=Duration(),
    help="How long a plugin may take to be read, and to estimate what a cell costs.  [30, 120]",
)


def parsed_sets(sets: Sequence[str], example: str) -> dict[str, Any]:
    """The options of a component by `--set OPTION=VALUE`, values read as in a suite. Raises UserError."""
    from fedbench.suite.yaml import Mark, parse_value

    found = {}
    for text in sets:
        option, equals, value = text.partition("=")
        if not (option.strip() and equals and value.strip()):
            raise UserError(f"--set {text}: expected OPTION=VALUE, for example {example}")
        found[option.strip()] = parse_value(value, Mark(f"--set {text}")).plain()
    return found


def workers(jobs: str) -> str | int:
    """What --jobs says, as `fedbench.runner.cells.Options` takes it. Raises UserError."""
    if jobs != "auto" and not whole(jobs):
        raise UserError(f"--jobs: expected auto or a whole number from 1, got {jobs!r:.80}")
    return jobs if jobs == "auto" else whole(jobs)


def whole(text: str) -> int:
    """A number of up to nine digits; 0 for any other text."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
