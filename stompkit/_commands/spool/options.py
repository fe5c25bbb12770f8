"""Parsing of the options of ``stompkit spool``: brokers, ages and sizes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from stompkit._common.arguments import argument_type
from stompkit._common.certificates import authorities
from stompkit._common.metrics import parse_address
from stompkit._common.secrets import resolve
from stompkit.client.blocking import BrokerUrl
from stompkit.spool import ServerAccess, SpoolReader
from stompkit.spool.address import is_url, parse_url, read_token

__all__ = ["SpoolUsageError", "address", "age", "brokers", "opened", "size"]

_AGES: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_SIZES: Final = {
    "": 1,
    "k": 1000,
    "ki": 1 << 10,
    "m": 1000**2,
    "mi": 1 << 20,
    "g": 1000**3,
    "gi": 1 << 30,
    "t": 1000**4,
    "ti": 1 << 40,
}


#: Time in seconds for which a command tries again while a server does not answer.
_PATIENCE_S: Final = 5.0


class SpoolUsageError(Exception):
    """An error in the command line."""


def opened(options: argparse.Namespace) -> SpoolReader:
    """Open the spool that a command is to read, in a directory or at a server.

    Raises SpoolUsageError, and :class:`~stompkit.spool.SpoolError`.
    """
    if not is_url(options.spool):
        if options.token_file is not None or options.ca is not None:
            raise SpoolUsageError("--token-file and --ca are for the URL of a server")
        return SpoolReader(options.spool)
    if options.token_file is None:
        raise SpoolUsageError(
            f"--token-file is missing: the server {options.spool} requires a token, which is in its"
            " own token file"
        )
    try:
        url = parse_url(options.spool)
        trusted = b"\n".join(authorities(options.ca)).decode() if options.ca is not None else ""
        access = ServerAccess(read_token(Path(options.token_file)), trusted, _PATIENCE_S)
    except ValueError as error:
        raise SpoolUsageError(str(error)) from None
    return SpoolReader(str(url), access=access)


def age(text: str) -> float:
    """Parse a time as seconds: ``90s``, ``30m``, ``12h``, ``7d``, ``2w``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number with s, m, h, d or w, such as 7d"
        )
    return float(found[1]) * _AGES[found[2]]


def size(text: str) -> int:
    """Parse a size as bytes: ``500000``, ``200MB``, ``10GiB``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]i?)?b?", text.lower())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size in bytes, such as 500MB or 2GiB")
    return int(float(found[1]) * _SIZES[found[2] or ""])


#: An address to listen on: ``HOST:PORT``, or a port of the loopback interface.
address = argument_type(parse_address)


def brokers(urls: Sequence[str]) -> dict[BrokerUrl, list[str]]:
    """Return the brokers, each with its source destinations.

    Instead of a URL, ``env:NAME`` refers to an environment variable, and ``file:PATH`` to the first
    line of a file. Raises :class:`SpoolUsageError`.
    """
    found: dict[BrokerUrl, list[str]] = {}
    for text in urls:
        try:
            url = BrokerUrl.parse(resolve(text))
        except ValueError as error:
            raise SpoolUsageError(f"--from: {error}") from None
        if not url.destination:
            raise SpoolUsageError("--from: the URL names no destination, such as /queue/orders")
        destinations = found.setdefault(replace(url, destination=""), [])
        if url.destination in destinations:
            raise SpoolUsageError(f"--from: {url.destination} is there twice")
        destinations.append(url.destination)
    return found
