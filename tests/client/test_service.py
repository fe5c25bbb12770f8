"""The client as a part of a Twisted application."""

from __future__ import annotations

from stompkit.client import StompService
from tests.client.logs import Log
from tests.client.network import Network, online, result, waits


def test_the_client_lives_as_long_as_the_application(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.client(endpoint)
    service = StompService(client)
    assert endpoint.attempts == 0
    service.startService()
    net.run()
    assert online(client)
    stopped = service.stopService()
    assert waits(stopped)
    net.wait(stopped)
    assert not online(client)
    assert endpoint.peer.frames[-1].command == "DISCONNECT"


def test_an_application_that_stops_before_there_is_a_connection_is_no_error(net: Network) -> None:
    endpoint = net.scripted(version=None)
    service = StompService(net.client(endpoint))
    service.startService()
    net.run()
    result(service.stopService())


def test_a_client_that_gives_up_is_logged(net: Network, log: Log) -> None:
    endpoint = net.scripted(version=None)
    service = StompService(net.client(endpoint))
    service.startService()
    net.run()
    endpoint.peer.refuse(message="Bad credentials")
    net.run()
    assert "Bad credentials" in log.take_errors()
    result(service.stopService())
