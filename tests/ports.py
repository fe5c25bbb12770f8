"""Ports at which nobody listens unless the test has it so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stompkit.testing._launching.ports import Ports

__all__ = ["free_ports"]


@contextmanager
def free_ports(count: int = 1) -> Iterator[list[int]]:
    """Ports of this machine; until the end nobody gets one who does not ask for that very port.

    Of a port that is free, and held by nobody, another test may make its own meanwhile.
    """
    ports = Ports("127.0.0.1")
    try:
        yield [ports.take() for _ in range(count)]
    finally:
        ports.close()
