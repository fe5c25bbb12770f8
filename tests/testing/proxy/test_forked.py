"""A process that a test has forked keeps no port and no connection of this one."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from stompkit.testing import LaunchConfig, launch
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.proxy import Proxy
from stompkit.testing.transcripts import ReplayServer, Transcript
from tests.testing.proxy.test_proxy import LONG_S, Bench, bench, cut_off, rest, take

__all__ = ["bench"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no fork")


@contextmanager
def forked(fork: Callable[[], int] = os.fork) -> Iterator[None]:
    """Fork a child that does nothing, for the time of the context."""
    child = fork()
    if not child:
        while True:
            signal.pause()
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def fork_without_hooks() -> int:
    """Fork as a library in C does; until it executes a program, the child has all descriptors."""
    child: int = ctypes.PyDLL(None).fork()
    return child


@pytest.mark.parametrize("fork", [os.fork, fork_without_hooks])
def test_nobody_listens_on_a_closed_port(bench: Bench, fork: Callable[[], int]) -> None:
    proxy = bench.proxy()
    with forked(fork):
        fault = proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            bench.client(proxy)
        fault.remove()
        wire = bench.wire(proxy)
        wire.client.sendall(b"x")
        assert take(wire.broker, 1) == b"x"
        proxy.stop()
        with pytest.raises(ConnectionRefusedError):
            bench.client(proxy)


@pytest.mark.parametrize("fork", [os.fork, fork_without_hooks])
def test_broker_can_be_killed_and_restarted(fork: Callable[[], int]) -> None:
    with launch(LaunchConfig(frames=True)) as broker, forked(fork):
        broker.kill()
        with pytest.raises(ConnectionRefusedError):
            broker.client()
        broker.restart()
        broker.client().close()


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (lambda proxy: proxy.reset(), cut_off),
        (lambda proxy: proxy.close(), rest),
        (lambda proxy: proxy.stop(), rest),
    ],
)
def test_both_sides_see_the_end_of_a_connection(
    bench: Bench, end: Callable[[Proxy], object], how: Callable[[socket.socket], bytes]
) -> None:
    proxy = bench.proxy()
    wire = bench.wire(proxy)
    with forked():
        end(proxy)
        assert how(wire.client) == how(wire.broker) == b""


def test_broker_sees_that_a_client_has_closed() -> None:
    with launch(LaunchConfig(control=True)) as broker:
        client = broker.client()
        with forked():
            client.close()
            assert wait_until(lambda: not broker.sessions(), LONG_S)


def test_replay_ends() -> None:
    replay = ReplayServer(Transcript(())).start()
    with forked(fork_without_hooks):
        replay.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((replay.host, replay.port), LONG_S)


@pytest.mark.parametrize("undo", ["remove", "heal"])
def test_refusal_remains_until_the_proxy_can_listen(bench: Bench, undo: str) -> None:
    """Another program has the port; once it is free, the fault can be removed again."""
    proxy = bench.proxy()
    fault = proxy.refuse()
    with (
        socket.create_server((proxy.host, proxy.port)),
        pytest.raises(OSError, match="in use"),
    ):
        fault.remove() if undo == "remove" else proxy.heal()
    with pytest.raises(ConnectionRefusedError):
        bench.client(proxy)
    fault.remove()
    bench.wire(proxy)
