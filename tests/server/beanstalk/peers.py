"""Clients of beanstalkd for tests: in memory, and of real servers."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, cast

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IReactorTime

from stompkit.server.beanstalk import BeanstalkFactory
from stompkit.server.settings.beanstalk import BeanstalkSettings
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.memory import MemoryBroker
from stompkit.testing.memory._transport import HalfCloseableTransport
from tests.ports import free_ports

__all__ = ["Front", "MemoryWorker", "Peer", "SocketPeer", "document", "job_id", "real_beanstalkd"]

DEADLINE_S = 20.0
_WITH_BODY = re.compile(rb"(?:RESERVED|FOUND) [0-9]+ ([0-9]+)|OK ([0-9]+)")


class Peer(Protocol):
    """A client that sends commands and gets one reply to each."""

    def ask(self, data: bytes) -> bytes:
        """Send a command and return its reply; the reply to ``quit`` is the end, and empty."""


class Front:
    """The front end on an in-memory broker, whose clock does not advance."""

    def __init__(self, broker: MemoryBroker, **settings: object) -> None:
        """Serve the queues of a broker; ``settings`` are those of ``[beanstalk]``."""
        self.broker = broker
        self.clock = broker.clock
        self.factory = BeanstalkFactory(
            broker.broker,
            BeanstalkSettings(**settings),  # type: ignore[arg-type]  # as the test has them
            cast("IReactorTime", broker.clock),
        )
        self._last_port = 60_000

    def worker(self) -> MemoryWorker:
        """Return a new client."""
        self._last_port += 1
        peer = IPv4Address("TCP", "127.0.0.1", self._last_port)
        transport = HalfCloseableTransport(self.clock, peer)
        transport.open(self.factory.buildProtocol(peer))
        return MemoryWorker(self, transport)


class MemoryWorker:
    """An in-memory client."""

    def __init__(self, front: Front, transport: HalfCloseableTransport) -> None:
        """Connect to the front end."""
        self.front = front
        self.transport = transport

    def ask(self, data: bytes) -> bytes:
        """Send bytes, and return the immediate replies."""
        self.transport.deliver(data)
        return self.heard()

    def heard(self) -> bytes:
        """Return the bytes received, after three iterations of the reactor."""
        for _ in range(3):
            self.front.clock.advance(0)
        return self.transport.take()


class SocketPeer:
    """A client of a real server."""

    def __init__(self, port: int) -> None:
        """Connect."""
        self._socket = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        self._socket.settimeout(DEADLINE_S)
        self._received = b""

    def ask(self, data: bytes) -> bytes:
        """Send a command and wait for the reply."""
        self._socket.sendall(data)
        return self.answer()

    def answer(self) -> bytes:
        """Return the next reply, empty at the end of the stream."""
        line = self._until(lambda: self._received.find(b"\r\n") + 2)
        found = _WITH_BODY.match(line)
        if found is None:
            return line
        size = int(found[1] or found[2]) + 2
        return line + self._until(lambda: size if len(self._received) >= size else 1)

    def _until(self, end: object) -> bytes:
        assert callable(end)
        while (size := end()) < 2:
            piece = self._socket.recv(65_536)
            if not piece:
                return b""
            self._received += piece
        data, self._received = self._received[:size], self._received[size:]
        return data

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


@contextmanager
def real_beanstalkd(*options: str) -> Iterator[int]:
    """Run a separate beanstalkd; yield its port."""
    program = shutil.which("beanstalkd")
    if program is None:
        if os.environ.get("STOMPKIT_MQ_MISSING") == "fail":
            pytest.fail("beanstalkd is not installed: apt-get install beanstalkd")
        pytest.skip("beanstalkd is not installed: apt-get install beanstalkd")
    with free_ports() as [port]:
        process = subprocess.Popen([program, "-l", "127.0.0.1", "-p", str(port), *options])
        try:
            assert wait_until(lambda: _answers(port), DEADLINE_S)
            yield port
        finally:
            process.kill()
            process.wait(DEADLINE_S)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), DEADLINE_S).close()
    except OSError:
        return False
    return True


def job_id(answer: bytes) -> int:
    """Return the id in a reply to ``put``, ``reserve`` or ``peek``."""
    found = re.match(rb"(?:INSERTED|RESERVED|FOUND) ([0-9]+)", answer)
    assert found is not None, answer
    return int(found[1])


def document(answer: bytes) -> dict[str, str]:
    """Return the pairs in a reply to ``stats`` and similar commands."""
    assert answer.startswith(b"OK "), answer
    lines = answer.decode().split("\n")[2:-1]
    return dict(line.rstrip("\r").split(": ", 1) for line in lines if ": " in line)
