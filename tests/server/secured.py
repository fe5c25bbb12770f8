"""A broker with TLS, whose certificate is only trusted if its authority is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.server.certificates import Authority
from tests.server.processes import TWIST, announced, processes

__all__ = ["Secured", "secured"]


class Secured(NamedTuple):
    """Address of the broker, and the authority of its certificate: a file, and its directory.

    ``client`` is a file with a certificate for clients, and its key.
    """

    host: str
    port: int
    authority: Path
    authorities: Path
    client: Path


@contextmanager
def secured(
    folder: Path, *, asks_for_certificates: bool = False, settings: str = ""
) -> Iterator[Secured]:
    """Start a broker with its files in an empty folder; ``settings`` are lines of ``[broker]``."""
    authorities, keys, run = (folder / name for name in ("authorities", "keys", "run"))
    for each in (authorities, keys, run):
        each.mkdir()
    authority = Authority(keys, "ca")
    file = authorities / "ca.pem"
    file.write_bytes(authority.file.read_bytes())
    announce = folder / "announce"
    endpoint = f"stomps:0:interface=127.0.0.1:certificate={authority.server()}"
    if asks_for_certificates:
        endpoint += f":clientCAs={authority.file}"
    file_of_settings = folder / "broker.toml"
    file_of_settings.write_text(f"[broker]\n{settings}\n", encoding="utf-8")
    options = ["--config", str(file_of_settings), "--announce", str(announce)]
    with processes(run) as start:
        process = start(TWIST, "--endpoint", endpoint, *options)
        [where] = announced(process, announce)
        client = authority.client("alice")
        yield Secured(where["host"], where["port"], file, authorities, client)
