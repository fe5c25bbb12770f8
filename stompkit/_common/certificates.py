"""Certificates of authorities that a client trusts, and what to do if they are missing."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from stompkit._common.files import describe

__all__ = ["authorities", "client_context", "distrust"]

_BLOCK: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\r?\n?", re.DOTALL
)
#: OpenSSL's error code for a certificate of another host name.
_WRONG_NAME: Final = 62
#: OpenSSL's codes for a certificate that is not valid yet, or has expired.
_WRONG_TIME: Final = (9, 10)


def authorities(where: str) -> list[bytes]:
    """Return the PEM certificates in a file, or in the ``.pem`` files of a directory.

    Other contents, such as keys, are ignored. Raises ``ValueError`` if there is no certificate, and
    for a path that cannot be read.
    """
    path = Path(where)
    try:
        is_directory = path.is_dir()
        found = list(_in_directory(path) if is_directory else _in_file(path))
    except OSError as error:
        raise ValueError(describe(error)) from error
    if not found and is_directory:
        raise ValueError(f"{where} has no certificates in files that end with .pem")
    if not found:
        raise ValueError(f"{where} has no certificate of an authority, as PEM")
    return found


def _in_directory(path: Path) -> Iterator[bytes]:
    for each in sorted(path.iterdir()):
        if each.suffix.lower() == ".pem":
            with suppress(OSError):
                yield from _in_file(each)


def _in_file(path: Path) -> Iterator[bytes]:
    probe = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for block in _BLOCK.findall(path.read_bytes()):
        with suppress(ssl.SSLError, ValueError):
            probe.load_verify_locations(cadata=block.decode())
            yield block


def client_context(where: str = "") -> ssl.SSLContext:
    """Return a TLS context that trusts the authorities of a path, or those of the system.

    Raises ``ValueError`` as :func:`authorities` does.
    """
    if not where:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=b"\n".join(authorities(where)).decode())
    return context


def distrust(error: ssl.SSLCertVerificationError, remedy: str) -> str:
    """Return why a certificate is not accepted, and what to do.

    ``remedy`` says how to name the certificate of an authority, for example ``with ?ca=FILE``.
    """
    if error.verify_code == _WRONG_NAME or "match" in error.verify_message:
        return (
            f"its certificate is for another name ({error.verify_message}): use a host name that is"
            " in it"
        )
    if error.verify_code in _WRONG_TIME:
        return (
            f"its certificate is not valid now ({error.verify_message}): renew it there, or set the"
            " clock of this machine"
        )
    return (
        f"its certificate is not trusted ({error.verify_message}): name the certificate of the"
        f" authority that signed it {remedy}"
    )
