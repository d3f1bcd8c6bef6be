"""The certificates and keys of a federation: an authority, the SuperLink's certificate, and a key for each node."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

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
