"""Clients of beanstalkd as tests have them: in memory, and of real servers."""

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
from stompkit.testing._launching.polling import wait_until
from stompkit.testing.memory import MemoryBroker
from stompkit.testing.memory._transport import HalfCloseableTransport
from tests.ports import free_ports

__all__ = ["Front", "MemoryWorker", "Peer", "SocketPeer", "document", "job_id", "real_beanstalkd"]

DEADLINE_S = 20.0
_WITH_BODY = re.compile(rb"(?:RESERVED|FOUND) [0-9]+ ([0-9]+)|OK ([0-9]+)")


class Peer(Protocol):
    """A client that gives commands and gets one answer to each."""

    def ask(self, data: bytes) -> bytes:
        """Give a command, and wait for its answer; that of ``quit`` is the end, and empty."""


class Front:
    """The front end on a broker in memory, whose time stands still."""

    def __init__(self, broker: MemoryBroker, **settings: object) -> None:
        """Serve a broker's queues; ``settings`` are those of ``[beanstalk]``."""
        self.broker = broker
        self.clock = broker.clock
        self.factory = BeanstalkFactory(
            broker.broker,
            BeanstalkSettings(**settings),  # type: ignore[arg-type]  # as the test has them
            cast("IReactorTime", broker.clock),
        )
        self._last_port = 60_000

    def worker(self) -> MemoryWorker:
        """A new client."""
        self._last_port += 1
        peer = IPv4Address("TCP", "127.0.0.1", self._last_port)
        transport = HalfCloseableTransport(self.clock, peer)
        transport.open(self.factory.buildProtocol(peer))
        return MemoryWorker(self, transport)


class MemoryWorker:
    """A client in memory."""

    def __init__(self, front: Front, transport: HalfCloseableTransport) -> None:
        """Connect."""
        self.front = front
        self.transport = transport

    def ask(self, data: bytes) -> bytes:
        """Send octets, and read what comes at once."""
        self.transport.deliver(data)
        return self.heard()

    def heard(self) -> bytes:
        """What has come; what goes on in a turn of its own has had its turns."""
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
        """Give a command and wait for the answer."""
        self._socket.sendall(data)
        return self.answer()

    def answer(self) -> bytes:
        """The next answer; nothing at the end of the stream."""
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
        """End the connection."""
        self._socket.close()


@contextmanager
def real_beanstalkd(*options: str) -> Iterator[int]:
    """A beanstalkd of its own; gives its port."""
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
    """The number in an answer to ``put``, ``reserve`` or ``peek``."""
    found = re.match(rb"(?:INSERTED|RESERVED|FOUND) ([0-9]+)", answer)
    assert found is not None, answer
    return int(found[1])


def document(answer: bytes) -> dict[str, str]:
    """The pairs of an answer to ``stats`` and its like."""
    assert answer.startswith(b"OK "), answer
    lines = answer.decode().split("\n")[2:-1]
    return dict(line.rstrip("\r").split(": ", 1) for line in lines if ": " in line)
