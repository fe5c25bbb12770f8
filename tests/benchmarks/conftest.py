"""A scripted broker for clients of benchmarks: its output does not depend on its input."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from benchmarks._client import Client
from stompkit.frames import Frame, encode

__all__ = ["Script", "delivery"]

#: Takes the bytes after CONNECTED, None for the end; returns a client that is logged in.
Script = Callable[[bytes | None], Client]


def delivery(number: int) -> bytes:
    """Return the MESSAGE with a number."""
    headers = {"message-id": "m", "destination": "/queue/a", "subscription": "1", "ack": "a"}
    return encode(Frame("MESSAGE", headers, b"%08d" % number), "1.2")


@pytest.fixture
def scripted() -> Iterator[Script]:
    """A factory of brokers that read nothing but CONNECT."""
    with ExitStack() as stack:

        def make(octets: bytes | None) -> Client:
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            client = Client(listening.getsockname()[1])
            stack.callback(client.close)
            accepted = stack.enter_context(listening.accept()[0])
            assert accepted.recv(1_024).startswith(b"CONNECT\n")
            accepted.sendall(encode(Frame("CONNECTED", {"version": "1.2"}), "1.2"))
            client.log_in()
            if octets is None:
                accepted.close()
            else:
                accepted.sendall(octets)
            return client

        yield make
