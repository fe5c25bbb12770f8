"""New connections are accepted a few at a time, and do not delay the data of others."""

from __future__ import annotations

import select
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from twisted.internet import reactor
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.internet.protocol import Factory, Protocol

from stompkit.server.listen.endpoints import MOST_ACCEPTED, accept_few, endpoint_of

CROWD = 100


class Counter(Factory):
    """Counts accepted connections."""

    noisy = False

    def __init__(self) -> None:
        """Start at zero."""
        self.came = 0

    def buildProtocol(self, addr: IAddress | None) -> Protocol:
        """Count a connection."""
        self.came += 1
        return Protocol()


def listening(description: str, factory: Factory) -> Any:
    ports: list[IListeningPort] = []
    endpoint_of(reactor, description).listen(factory).addCallback(ports.append)
    [port] = ports
    return port


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
def test_no_turn_of_the_reactor_lets_in_more_than_a_few(
    family: socket.AddressFamily, tmp_path: Path
) -> None:
    counter = Counter()
    path = str(tmp_path / "socket")
    is_unix = family == socket.AF_UNIX
    port = listening(f"unix:{path}" if is_unix else "tcp:0:interface=127.0.0.1", counter)
    accept_few(port)
    with ExitStack() as stack:
        # The reactor does not run: the test performs its iterations.
        stack.callback(port.connectionLost, None)
        for _ in range(CROWD):
            stranger = stack.enter_context(socket.socket(family))
            stranger.connect(path if is_unix else ("127.0.0.1", port.getHost().port))
        turns = []
        while counter.came < CROWD:
            assert select.select([port.socket], [], [], 30)[0]
            before = counter.came
            port.doRead()
            turns.append(counter.came - before)
    assert max(turns) == MOST_ACCEPTED
    assert sum(turns) == CROWD
