"""Metrics for Prometheus, served over HTTP. Needs the extra ``metrics``."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from stompkit._common.moved import renamed

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["Address", "MetricsError", "new_registry", "parse_address", "serving"]

_LOOPBACK: Final = "127.0.0.1"
_IS_ADDRESS: Final = re.compile(r"(?:(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):)?([0-9]{1,5})").fullmatch
_MOST_PORT: Final = 65_535


class MetricsError(Exception):
    """Metrics can't be served; ``str()`` says why, and what to do."""


class Address(NamedTuple):
    """An address to listen on."""

    host: str
    #: 0 is any one that is free.
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """``HOST:PORT``, or a port of the loopback interface; raises ``ValueError`` for others."""
    found = _IS_ADDRESS(text)
    if found is None or int(found[2]) > _MOST_PORT:
        raise ValueError(f"{text!a} is not HOST:PORT, such as 127.0.0.1:9400, or a port alone")
    return Address((found[1] or _LOOPBACK).strip("[]"), int(found[2]))


def new_registry() -> CollectorRegistry:
    """A registry for metrics; raises :class:`MetricsError` where the library is missing."""
    try:
        from prometheus_client import CollectorRegistry
    except ModuleNotFoundError as error:
        raise MetricsError(f"metrics need {error.name}: pip install 'stompkit[metrics]'") from None
    return CollectorRegistry()


@contextmanager
def serving(address: Address, registry: CollectorRegistry) -> Iterator[Address]:
    """Answer at an address; gives the one that it is. Raises :class:`MetricsError`."""
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(address.port, address.host, registry)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            reason = "something listens there already: end that, or name another port"
        elif error.errno == errno.EACCES:
            reason = "this is not allowed: name a port from 1024 on"
        elif error.errno == errno.EADDRNOTAVAIL or error.errno is None or error.errno < 0:
            reason = f"{error.strerror or error}: name an address that this machine has"
        else:
            reason = error.strerror or str(error)
        raise MetricsError(f"metrics can't be served at {address}: {reason}") from None
    try:
        yield Address(address.host, server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


renamed(
    __name__,
    MetricsProblem="MetricsError",
)
