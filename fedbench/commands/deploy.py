"""fedbench deploy: clients on machines of their own, by Flower."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from fedbench.commands.choices import PLUGINS, RESULTS, SUITE, FilePath, cells
from fedbench.commands.run import run as run_here
from fedbench.errors import UserError

PORT = 9092  # of a SuperLink


@click.group()
def deploy() -> None:
    """Compute cells on machines with examples of their own.

    \b
    fedbench deploy link federation --clients 2 --name server.example.org
    fedbench deploy node --data pics --superlink example.org:9092 --key client-0
    fedbench deploy run my_suite.yaml --superlink federation

    The first and the last on the server, the second on each device. docs/deploy.md goes through all of it. On this
    machine alone, to see that simulation and deployment agree: `fedbench run SUITE --executor flower`.
    """


@deploy.command()
@click.argument("folder", type=FilePath(file_okay=False))
@click.option("--clients", type=click.IntRange(1), help="How many nodes a new federation has.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="What nodes call this machine by: a name or IP.")
@click.option("--host", default="0.0.0.0", show_default=True, help="The address to listen on.")
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(1, 65535), help="The port to listen on.")
def link(folder: str, clients: int | None, names: tuple[str, ...], host: str, port: int) -> None:
    """Run a federation's SuperLink until you press Ctrl-C.

    \b
    fedbench deploy link federation --clients 2 --name server.example.org

    FOLDER is made where it is not there: with a certificate, a database, and a key for each client in FOLDER/keys. Give
    each device its own key and FOLDER/ca.crt, and no other file. A federation that is there stays as it was made.
    """
    from fedbench.deployment.federation import Federation

    _require_flower()
    federation = Federation(Path(folder))
    if not (Path(folder) / "federation.json").exists():
        if clients is None:
            raise UserError(f"{folder} is no federation yet: --clients says how many nodes it is to have")
        federation.create(clients, host, port, names)
        click.echo(f"Keys of {clients} clients: {folder}/keys. Certificate: {folder}/ca.crt.")
    elif clients not in (None, federation.facts["clients"]) or names:
        raise UserError(
            f"{folder} has {federation.facts['clients']} clients and its certificate; another folder, please"
        )
    _supervised("fedbench.deployment.standing:link", os.path.abspath(folder))


@deploy.command()
@click.option("--data", required=True, type=FilePath(), metavar="DIR", help="This client's examples.")
@click.option("--superlink", required=True, metavar="HOST:PORT", help="Where the SuperLink listens.")
@click.option("--key", required=True, type=FilePath(), metavar="FILE", help="This client's key.")
@click.option("--ca", type=FilePath(), metavar="FILE", help="The certificate; default: ca.crt next to the key.")
@PLUGINS
def node(data: str, superlink: str, key: str, ca: str | None, plugins: tuple[str, ...]) -> None:
    """Be a client: run a SuperNode and its trainer.

    \b
    fedbench deploy node --data pics --superlink example.org:9092 --key client-0

    It runs until you press Ctrl-C.

    DIR is laid out as the data set of the suites that come. The client trains on its training split, and no example
    leaves this machine. It dials out and needs no open port. What ends by itself is started again.
    """
    _require_flower()
    authority = Path(ca) if ca else Path(key).with_name("ca.crt")
    for option, path in (("--data", data), ("--key", key), ("--ca", authority)):
        if not Path(path).exists():
            raise UserError(f"{option}: there is no {path}")
    if not superlink.rpartition(":")[2].isdecimal():
        raise UserError(f"--superlink {superlink}: expected HOST:PORT, such as server.example.org:{PORT}")
    given = {"data": data, "key": key, "authority": str(authority)}
    given = {name: os.path.abspath(path) for name, path in given.items()}
    files = [os.path.abspath(file) for file in plugins]
    _supervised("fedbench.deployment.standing:node", {**given, "superlink": superlink, "plugins": files})


@deploy.command()
@SUITE
@click.option("--superlink", required=True, type=FilePath(), metavar="FOLDER", help="The federation's folder.")
@click.option(
    "--least", type=click.FloatRange(0, 1), default=0.5, show_default=True, help="The share that must answer."
)
@click.option(
    "--wait",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a round waits for its nodes.",
)
@cells
@RESULTS
@click.pass_context
def run(context: click.Context, suite: str, superlink: str, least: float, wait: float, **choices: Any) -> None:
    """Run SUITE on the nodes of a federation.

    \b
    fedbench deploy run my_suite.yaml --superlink federation

    This runs on the machine of the SuperLink.

    Every client is a node with examples of its own; what the suite's data set has for testing is tested here. A round
    waits --wait SECONDS for its nodes. Where less than --least of them answer, or where the SuperLink ends, the cell is
    interrupted, and the same command resumes it. Exit codes are those of `fedbench run`.
    """
    from fedbench.deployment.federation import Federation
    from fedbench.deployment.standing import described
    from fedbench.registry.registry import Registry
    from fedbench.runner import runner

    _require_flower()
    names = ("scenarios", "methods", "seeds", "variants")
    kept = {name: choices[name] for name in ("sets", "add", "profile", "data")}
    loaded = runner.load(suite, Registry(choices["plugins"]), **kept)
    sections = [point.config["data"] for point in loaded.points(*(choices[name] for name in names))]
    sections = [{key: value for key, value in data.items() if key != "partition"} for data in sections]
    if any(data != sections[0] for data in sections):
        raise UserError("deploy run: nodes have one data set, and this suite has several; --set or --scenario chooses")
    partition = described(superlink, sections[0])
    executor = {"name": "flower", "superlink": os.path.abspath(superlink), "least": least, "answer": wait}
    choices["sets"] = (*choices["sets"], f"data.partition={json.dumps(partition)}")
    os.environ["FEDBENCH_ON_NODES"] = str(Federation(Path(superlink)).facts["clients"])
    context.invoke(run_here, suite=suite, executor=json.dumps(executor), **choices)


def _require_flower() -> None:
    from fedbench.runner.elsewhere import library

    library("flwr", "flower")


def _supervised(function: str, argument: Any) -> None:
    """Call a function in a child process that is ended with all that it starts, and print its lines."""
    from fedbench.processes.signals import raising
    from fedbench.processes.supervisor import ChildFailed, call

    with raising():
        try:
            call(function, argument, timeout=None, on_event=lambda event: click.echo(event.get("line", "")))
        except ChildFailed as error:
            raise UserError(f"it {error.reason}") from error
