"""A deadline is checked after received data has been read, not earlier.

After a process was stopped or busy, timers are due before any data is read. In these tests, the
kernel has bytes of the client, in a real socket, that have not been read yet.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from stompkit._common import MOST_GRACE_S, PeerDeadline, can_write, has_unread
from stompkit.server import BrokerConfig, BrokerFactory
from stompkit.server.listen.proxied import HEADER_TIMEOUT_S, HeaderFactory
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.memory import MemoryBroker
from tests.server.beanstalk.peers import Front
from tests.server.brokers import publish_all, refusal, take_one
from tests.server.processes import LOOPBACK, TWISTD, announced, processes, tcp

QUEUE = "/queue/a"


class Kernel:
    """Data that the kernel has for a transport, in a real socket."""

    def __init__(self) -> None:
        """Start without data."""
        self._ours, self._peers = socket.socketpair()

    def under(self, transport: Any) -> Kernel:
        """Make a transport use this socket."""
        transport.fileno = self._ours.fileno
        return self

    def has(self, octets: bytes = b"\n") -> None:
        """Make bytes of the peer available."""
        self._peers.send(octets)

    def is_read(self) -> None:
        """Read all bytes."""
        self._ours.recv(1_000)

    def close(self) -> None:
        """Close both sockets."""
        self._ours.close()
        self._peers.close()


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    """A socket pair."""
    made = Kernel()
    yield made
    made.close()


# Checks for unread data.


def test_what_waits_is_seen(kernel: Kernel) -> None:
    transport: Any = StringTransport()  # type: ignore[no-untyped-call]  # Twisted's
    assert not has_unread(transport)
    kernel.under(transport)
    assert not has_unread(transport)
    assert can_write(transport)
    kernel.has()
    assert has_unread(transport)
    kernel.is_read()
    assert not has_unread(transport)


def test_the_end_of_a_stream_waits_as_well(kernel: Kernel) -> None:
    transport: Any = StringTransport()  # type: ignore[no-untyped-call]  # Twisted's
    kernel.under(transport)
    kernel._peers.close()
    assert has_unread(transport)


@pytest.mark.parametrize("waiting_s", [0.0, 1.0, 4.0])
def test_a_deadline_waits_for_octets_to_be_handled_but_not_for_ever(waiting_s: float) -> None:
    clock, late = Clock(), []
    waits = [True]
    deadline = PeerDeadline(clock, lambda: waits[0], lambda: late.append(clock.seconds()))
    deadline.start(10.0)
    clock.advance(10.0)
    clock.pump([0.05] * round(waiting_s / 0.05))
    assert late == []
    assert deadline.active()
    waits[0] = waiting_s == 0.0
    clock.pump([0.05] * 200)
    [at] = late
    most = MOST_GRACE_S if waits[0] else waiting_s
    assert at == pytest.approx(10.0 + most, abs=0.11)
    assert not deadline.active()


# Deadlines that use these checks.


def test_a_client_whose_beats_wait_is_not_silent(kernel: Kernel) -> None:
    broker = MemoryBroker()
    client = broker.client(heart_beat="1000,0")
    kernel.under(client.transport)
    kernel.has()
    broker.clock.advance(100.0)
    assert refusal(client) is None
    kernel.is_read()
    broker.clock.advance(1.0)
    assert refusal(client) is None
    broker.clock.advance(1.0)
    assert refusal(client) == "heart-beat-timeout"


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_login_that_waits_is_looked_at(kernel: Kernel, *, is_sent: bool) -> None:
    broker = MemoryBroker()
    client = broker.connect()
    kernel.under(client.transport)
    kernel.has(b"CONNECT")
    broker.clock.advance(broker.broker.config.login_timeout_s)
    assert refusal(client) is None
    kernel.is_read()
    if is_sent:
        client.write(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
    broker.clock.pump([0.05] * 400)
    assert refusal(client) == (None if is_sent else "login-timeout")


def test_octets_without_end_are_no_login(kernel: Kernel) -> None:
    broker = MemoryBroker()
    client = broker.connect()
    kernel.under(client.transport)
    kernel.has()
    broker.clock.advance(broker.broker.config.login_timeout_s)
    broker.clock.pump([0.05] * 200)
    assert refusal(client) == "login-timeout"


@pytest.mark.parametrize("is_acknowledged", [True, False])
def test_an_acknowledgement_that_waits_is_in_time(kernel: Kernel, *, is_acknowledged: bool) -> None:
    broker = MemoryBroker(BrokerConfig(ack_timeout_s=10.0))
    slow, other = broker.client(), broker.client()
    slow.subscribe(QUEUE, ack="client", prefetch_count="1")
    other.publish(QUEUE, b"x")
    message = take_one(slow)
    other.subscribe(QUEUE)
    kernel.under(slow.transport)
    kernel.has()
    broker.clock.advance(10.0)
    assert other.bodies() == []
    kernel.is_read()
    if is_acknowledged:
        slow.ack(message)
    broker.clock.pump([0.05] * 200)
    assert other.bodies() == ([] if is_acknowledged else [b"x"])


def test_a_commit_that_waits_is_in_time(kernel: Kernel) -> None:
    broker = MemoryBroker(BrokerConfig(transaction_timeout_s=10.0))
    client = broker.client()
    client.send("BEGIN", transaction="t")
    client.publish(QUEUE, b"x", transaction="t")
    kernel.under(client.transport)
    kernel.has()
    broker.clock.advance(10.0)
    assert refusal(client) is None
    client.send("COMMIT", transaction="t", receipt="r")
    assert client.take("RECEIPT")
    broker.clock.pump([0.05] * 200)
    assert refusal(client) is None


@pytest.mark.parametrize("command", [b"touch 1\r\n", b"delete 1\r\n", b""])
def test_a_worker_whose_command_waits_keeps_its_job(kernel: Kernel, command: bytes) -> None:
    front = Front(MemoryBroker())
    worker, other = front.worker(), front.worker()
    worker.ask(b"put 0 0 10 1\r\nx\r\n")
    assert worker.ask(b"reserve\r\n") == b"RESERVED 1 1\r\nx\r\n"
    kernel.under(worker.transport)
    kernel.has()
    front.clock.advance(10.0)
    assert other.ask(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    kernel.is_read()
    if command:
        assert worker.ask(command) in (b"TOUCHED\r\n", b"DELETED\r\n")
    front.clock.pump([0.05] * 20)
    answer = other.ask(b"reserve-with-timeout 0\r\n")
    assert answer == (b"TIMED_OUT\r\n" if command else b"RESERVED 1 1\r\nx\r\n")


def test_a_proxy_header_that_waits_is_in_time(kernel: Kernel) -> None:
    clock = Clock()
    factory = HeaderFactory(BrokerFactory(clock=clock), (), clock)
    protocol = factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 5_000))
    assert protocol is not None
    transport: Any = StringTransport()  # type: ignore[no-untyped-call]  # Twisted's
    aborted: list[bool] = []
    transport.abortConnection = lambda: aborted.append(True)
    kernel.under(transport)
    protocol.makeConnection(transport)  # type: ignore[no-untyped-call]  # Twisted's
    kernel.has()
    clock.advance(HEADER_TIMEOUT_S)
    assert aborted == []
    clock.pump([0.05] * 200)
    assert aborted == [True]


def test_who_reads_at_last_gets_the_last_frame(kernel: Kernel) -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe(QUEUE)
    client.stop_reading()
    publish_all(broker.client(), QUEUE, [bytes(100_000)] * 3)
    kernel.under(client.transport)  # this socket accepts data
    client.write(b"nonsense\n\n\0")
    broker.clock.advance(broker.broker.config.drain_timeout_s)
    assert not client.aborted
    client.start_reading()
    assert refusal(client) == "unknown-command"


# A stopped process.


def test_a_broker_that_was_stopped_drops_nobody_who_has_sent(tmp_path: Path) -> None:
    announce = tmp_path / "announce"
    with processes(tmp_path) as start:
        process = start(TWISTD, "--endpoint", LOOPBACK, "--announce", str(announce))
        [where] = announced(process, announce)
        with tcp(where) as client:
            client.sendall(b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:1000,0\n\n\0")
            assert client.recv(4_096).startswith(b"CONNECTED")
            os.kill(process.popen.pid, signal.SIGSTOP)
            client.sendall(b"\n")
            # Meanwhile its deadline passes, and the heart-beat waits to be read.
            assert not wait_until(lambda: False, 3.0)
            os.kill(process.popen.pid, signal.SIGCONT)
            client.sendall(b"SEND\ndestination:/queue/a\nreceipt:r\n\n\0")
            answer = client.recv(4_096)
            assert b"RECEIPT" in answer
            assert b"ERROR" not in answer
