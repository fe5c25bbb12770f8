"""The client sends the passcode to the broker, and reveals it nowhere else."""

from __future__ import annotations

import traceback

import pytest

from stompkit.client import ClientClosedError, LoginRefusedError, ReconnectPolicy, StompService
from tests.client.logs import Log
from tests.client.network import Network, failed

SECRET = "open sesame"


def test_the_passcode_is_not_shown(net: Network) -> None:
    client = net.connected(endpoint := net.scripted(), login="me", passcode=SECRET)
    assert endpoint.peer.frames[0].headers["passcode"] == SECRET
    parts = [client, *vars(client).values(), endpoint.peer.transport, StompService(client)]
    shown = [part for part in parts if part is not SECRET]
    assert len(shown) == len(parts) - 1  # the client keeps it for the next connection
    assert SECRET not in repr(shown)
    protocol = endpoint.peer.transport.protocol
    assert protocol is not None
    assert SECRET not in repr(vars(protocol))  # the protocol no longer needs it


@pytest.mark.parametrize("octets", [b"NONSENSE\n\n\0", b"ERROR\nmessage:what\n\n\0", b""])
def test_the_passcode_is_not_logged(net: Network, log: Log, octets: bytes) -> None:
    endpoint, closed = net.scripted(), net.scripted()
    closed.refuses = True
    policy = ReconnectPolicy(attempt_timeout_s=1.0)
    client = net.client(closed, endpoint, login="me", passcode=SECRET, reconnect=policy)
    client.connect()
    net.advance(0.2)
    endpoint.peer.write(octets)
    net.run()
    endpoint.peer.drop()
    net.advance(3.0)
    assert endpoint.attempts > 1
    assert "lost the connection to" in log.text
    assert SECRET not in log.text + repr(log.events)


def test_the_passcode_is_not_in_an_error(net: Network, log: Log) -> None:
    endpoint = net.scripted(version=None)
    client = net.client(endpoint, login="me", passcode=SECRET)
    connected, sent = client.connect(), client.send("/queue/a")
    net.run()
    endpoint.peer.refuse(message="Bad credentials")
    net.run()
    for error in (failed(connected, LoginRefusedError), failed(sent, ClientClosedError)):
        assert SECRET not in "".join(traceback.format_exception(error)) + repr(error)
    assert SECRET not in log.take_errors()
