"""A federation of Flower as processes of this machine: a SuperLink with TLS, SuperNodes, their certificates, keys."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from fedbench.deployment.server import NAME
from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.processes import process_tree

OPENS, ENDS = 60.0, 5.0  # seconds that a SuperLink has to open its port, and a process to end
AT_ONCE = 4  # processes that register nodes, of 100 MB each
KNOWN = "Public key already in use"  # what Flower says of a node that is registered
QUIET = {  # it sends usage statistics and looks for updates unless it is told not to, and looks for work every 3 s
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "OMP_NUM_THREADS": "1",
}
APP = """[project]
name = "fedbench-cell"
version = "1.0.0"
description = "A cell of fedbench"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedbench"

[tool.flwr.app.components]
serverapp = "fedbench.deployment.app.server_app:app"
clientapp = "fedbench.deployment.app.client_app:app"

[tool.flwr.app.config]
door = ""
"""
CONNECTION = '[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = {}\nroot-certificates = {}\n'


class Processes:
    """Programs of Flower, each with a log in `folder/logs` and a home of its own. They end with this object."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.running = folder.resolve(), dict[str, subprocess.Popen]()

    def environment(self, name: str) -> dict[str, str]:
        """What a program of that name runs with."""
        home = self.folder / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, **QUIET, "FLWR_HOME": str(home), "PATH": path}

    def start(self, name: str, *command: str) -> None:
        """Start a program, which the system ends with this process."""
        log = self.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as out:
            self.running[name] = subprocess.Popen(
                command,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env=self.environment(name),
                start_new_session=True,
                preexec_fn=process_tree.end_with_parent,
            )

    def log(self, name: str) -> Path:
        """What a program printed."""
        return self.folder / "logs" / f"{name}.log"

    def stop(self, *names: str, at_once: bool = False) -> None:
        """End these programs and all that they started, by default all."""
        chosen = [self.running.pop(name) for name in names or list(self.running)]
        below = [process for one in chosen for process in _tree(one.pid)]
        for number in (signal.SIGKILL,) if at_once else (signal.SIGTERM, signal.SIGKILL):
            for process in below:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
            _, below = psutil.wait_procs(below, ENDS)
        for one in chosen:
            with suppress(ProcessLookupError):  # what those left behind that ended by themselves
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop(at_once=True)


def _tree(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        one = psutil.Process(pid)
        return [*one.children(recursive=True), one]
    return []


class Federation(Processes):
    """A SuperLink's folder: its certificate, its database, and the keys of the nodes that may join.

    Raises UserError where `folder` is no federation's, from all that needs one.
    """

    def create(self, clients: int, host: str, port: int, names: Sequence[str] = ()) -> None:
        """Make certificates and keys.

        Args:
            host: what it listens on.
            names: what nodes may call it by.
        """
        make_certificates(self.folder, list(dict.fromkeys([*names, host, "127.0.0.1", "localhost"])))
        for client in range(clients):
            make_key(self.key(client))
        facts = {"clients": clients, "host": host, "port": port, "registered": []}
        self._write(facts)

    @property
    def facts(self) -> dict[str, Any]:
        """How many clients it has, the host and port it listens on, and which clients are registered."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "federation.json").read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"{self.folder} is no federation's folder; `fedbench deploy link` makes one") from error
        return found

    def _write(self, facts: Mapping[str, Any]) -> None:
        write_atomically(self.folder / "federation.json", json.dumps(facts, indent=1).encode())

    def key(self, client: int) -> Path:
        """The key of the node of a client."""
        return self.folder / "keys" / f"{NAME}{client}"

    @property
    def authority(self) -> Path:
        """The certificate by which nodes know the SuperLink."""
        return self.folder / AUTHORITY

    def start_link(self, lasting: bool) -> None:
        """Start the SuperLink, and register the nodes that are not registered. Raises UserError where it does not.

        lasting: whether it knows them again after it has ended, which takes a database.
        """
        facts = self.facts
        secure = {"certfile": CERTIFICATE, "keyfile": KEY, "ca-certfile": AUTHORITY}
        self.start(
            "superlink",
            *(sys.executable, "-P", "-m", "fedbench.deployment.app.superlink"),
            *("--host", facts["host"], "--port", str(facts["port"])),
            *(part for name, file in secure.items() for part in (f"--ssl-{name}", str(self.folder / file))),
            *(("--database", str(self.folder / "link.db")) if lasting else ()),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
        )
        self.wait_for_link()
        if missing := [n for n in range(facts["clients"]) if n not in facts["registered"]]:
            self.register(missing)

    def wait_for_link(self) -> None:
        """Wait until the SuperLink's port is open. Raises UserError where it never is."""
        until, (host, port) = time.monotonic() + OPENS, (self.facts["host"], self.facts["port"])
        here = "127.0.0.1" if host == "0.0.0.0" else host
        while time.monotonic() < until:
            link = self.running.get("superlink")
            if link is not None and link.poll() is not None:
                break
            with suppress(OSError), socket.create_connection((here, port), 1.0):
                return
            time.sleep(0.1)
        raise UserError(f"the SuperLink does not open {here}:{port}: {last_line(self.log('superlink'))}")

    def register(self, clients: Sequence[int]) -> None:
        """Let the nodes of these clients in, by the names of their keys. What is broken off can be repeated."""
        self._connect()
        for first in range(0, len(clients), AT_ONCE):
            asked = {
                n: self._flwr("supernode", "register", f"{self.key(n)}.pub", "here", "--name", f"{NAME}{n}")
                for n in clients[first : first + AT_ONCE]
            }
            for n, one in asked.items():
                self._done("supernode register", one, KNOWN)
                facts = self.facts
                self._write({**facts, "registered": sorted({*facts["registered"], n})})

    def submit(self, door: Path) -> None:
        """Start the relay of a cell, which knocks at a door."""
        self._connect()
        write_atomically(self.folder / "app" / "pyproject.toml", APP.encode())
        where = f"door={json.dumps(str(door))}"
        self._done("run", self._flwr("run", str(self.folder / "app"), "here", "--run-config", where))

    def _connect(self) -> None:
        facts = self.facts
        host = "127.0.0.1" if facts["host"] == "0.0.0.0" else facts["host"]
        text = CONNECTION.format(json.dumps(f"{host}:{facts['port']}"), json.dumps(str(self.authority)))
        self.environment("cli")
        write_atomically(self.folder / "homes" / "cli" / "config.toml", text.encode())

    def _flwr(self, *command: str) -> subprocess.Popen:
        words = ["flwr", *command, "--format", "json"]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(words, env=self.environment("cli"), **pipes)

    def _done(self, what: str, one: subprocess.Popen, fine: str | None = None) -> None:
        """Wait for a command. Raises UserError where it fails, unless it prints `fine`."""
        said = str(one.communicate()[0])
        if (one.returncode or '"success": false' in said) and not (fine and fine in said):
            raise UserError(f"flwr {what}: {said.strip()[-500:] or one.returncode}")


def start_node(processes: Processes, name: str, address: str, authority: Path, key: Path, door: Path) -> None:
    """Start a SuperNode. door: of its trainer."""
    processes.start(
        name,
        *("flower-supernode", "--superlink", address, "--root-certificates", str(authority.resolve())),
        *("--auth-supernode-private-key", str(key.resolve()), "--host", "127.0.0.1", "--port", str(free_port())),
        *("--node-config", f"trainer={json.dumps(str(door))}"),
    )


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def last_line(log: Path) -> str:
    """The last line of a log."""
    with suppress(OSError):
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "it printed nothing"
    return "it printed nothing"


AUTHORITY, CERTIFICATE, KEY = "ca.crt", "server.pem", "server.key"
DAYS = 365


def make_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """Write an authority's certificate, and a certificate and key of a server with these names or addresses. The
    authority's own key is not kept."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    root, own = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    now = datetime.now(UTC)

    def name(text: str) -> Any:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def certificate(subject: str, key: Any, *extensions: tuple[Any, bool]) -> bytes:
        made = x509.CertificateBuilder(name("fedbench federation"), name(subject), key.public_key())
        made = made.serial_number(x509.random_serial_number())
        made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=DAYS))
        for extension, critical in extensions:
            made = made.add_extension(extension, critical)
        return made.sign(root, hashes.SHA256()).public_bytes(_encoding().PEM)

    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    signs = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, decipher_only=False, **usage)
    subject_key = x509.SubjectKeyIdentifier.from_public_key(root.public_key())
    authority = ((x509.BasicConstraints(True, 0), True), (signs, True), (subject_key, False))
    names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(root.public_key())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / AUTHORITY).write_bytes(certificate("fedbench federation", root, *authority))
    (folder / CERTIFICATE).write_bytes(certificate(hosts[0], own, (names, False), (issuer_key, False)))
    _write_secret(folder / KEY, _pem(own, "PKCS8"))


def make_key(file: Path) -> None:
    """Write a node's key, and its public part next to it with the suffix `.pub`."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import PublicFormat

    own = ec.generate_private_key(ec.SECP384R1())
    _write_secret(file, _pem(own, "OpenSSH"))
    public = own.public_key().public_bytes(_encoding().OpenSSH, PublicFormat.OpenSSH)
    file.with_name(f"{file.name}.pub").write_bytes(public)


def _alternative(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _encoding() -> Any:
    from cryptography.hazmat.primitives.serialization import Encoding

    return Encoding


def _pem(key: Any, form: str) -> bytes:
    from cryptography.hazmat.primitives.serialization import NoEncryption, PrivateFormat

    return bytes(key.private_bytes(_encoding().PEM, getattr(PrivateFormat, form), NoEncryption()))


def _write_secret(file: Path, content: bytes) -> None:
    """Write a file that nobody else may read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(content)
