"""Ports on which nothing listens unless the test does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from stompkit.testing.launching.ports import Ports

__all__ = ["free_ports", "free_range"]


@contextmanager
def free_ports(count: int = 1) -> Iterator[list[int]]:
    """Yield free ports of this machine, reserved until the end.

    Only a process that asks for one of them by number gets it. Without the reservation, another
    test could bind a free port meanwhile.
    """
    ports = Ports("127.0.0.1")
    try:
        yield [ports.take() for _ in range(count)]
    finally:
        ports.close()


@contextmanager
def free_range(count: int) -> Iterator[int]:
    """Yield the first of *count* consecutive ports, reserved as those of :func:`free_ports` are."""
    with ExitStack() as stack:
        while (first := _take_range(stack, count)) is None:
            pass
        yield first


def _take_range(stack: ExitStack, count: int) -> int | None:
    first = 0
    for offset in range(count):
        held = stack.enter_context(socket.socket())
        try:
            held.bind(("127.0.0.1", first and first + offset))
        except (OSError, OverflowError):
            return None
        first = first or held.getsockname()[1]
        # Only now: no other process may bind the port, but a server may listen there.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return first
