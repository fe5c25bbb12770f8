r"""A broker relay like Spring's: its frames, as its client writes them, over a socket.

A server with WebSocket clients keeps one connection for sending, the system session, and one
connection for each of its clients. Sources: Spring Framework's reference, "External Broker", and
``StompEncoder``: header lines in any order, ``\\n`` as line end, ``content-length`` for each body,
a line feed as heart-beat.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from stompkit.frames import Frame, FrameDecoder
from tests.server.processes import (
    DEADLINE_S,
    LOOPBACK,
    TWIST,
    Start,
    announced,
    processes,
    tcp,
)

LOGIN = "login:guest\npasscode:guest\n"


class Relay:
    """One connection of the relay; frames are written as text."""

    def __init__(self, where: dict[str, object]) -> None:
        """Open the connection."""
        self._socket: socket.socket = tcp(where)
        self._socket.settimeout(DEADLINE_S)
        self._decoder = FrameDecoder("1.2")
        self._frames: list[Frame] = []

    def write(self, text: str) -> None:
        """Send a frame, or a heart-beat."""
        self._socket.sendall(text.encode() if text == "\n" else f"{text}\0".encode())

    def receive(self) -> Frame:
        """Return the next frame."""
        while not self._frames:
            data = self._socket.recv(65_536)
            assert data, "the broker has closed"
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    def wait_for_beat(self) -> None:
        """Wait for a line feed from the broker, while no frame is in transit."""
        assert self._socket.recv(1) == b"\n"

    def connect(self, *, system: bool = False, beats: str = "10000,10000") -> Frame:
        """Log in; a client's connection forwards the client's versions."""
        command = "STOMP" if not system else "CONNECT"
        self.write(f"{command}\naccept-version:1.1,1.2\nheart-beat:{beats}\n{LOGIN}host:/\n\n")
        return self.receive()

    def receipt(self, frame: str, number: str) -> None:
        """Send a frame with a receipt, and wait for that."""
        self.write(frame.replace("\n", f"\nreceipt:{number}\n", 1))
        answer = self.receive()
        assert (answer.command, answer.headers["receipt-id"]) == ("RECEIPT", number)

    def subscribe(self, number: str, destination: str, **headers: str) -> None:
        """Subscribe with these headers; underscores in their names become hyphens."""
        more = "".join(f"{name.replace('_', '-')}:{value}\n" for name, value in headers.items())
        frame = f"SUBSCRIBE\nid:{number}\ndestination:{destination}\n{more}\n"
        self.receipt(frame, f"sub-{number}")

    def send(self, destination: str, body: str) -> None:
        """Send JSON, as Spring's message converter makes it."""
        self.write(
            f"SEND\ndestination:{destination}\ncontent-type:application/json\n"
            f"content-length:{len(body.encode())}\n\n{body}"
        )

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class Relays:
    """A broker with the login of the relay, and connections to it."""

    def __init__(self, where: dict[str, object]) -> None:
        """Start without connections."""
        self._where = where
        self._open: list[Relay] = []

    def connection(self) -> Relay:
        """Open another connection, not logged in."""
        self._open.append(Relay(self._where))
        return self._open[-1]

    def session(self, *, system: bool = False) -> Relay:
        """Open another connection and log in."""
        relay = self.connection()
        assert relay.connect(system=system).command == "CONNECTED"
        return relay

    def close(self) -> None:
        """Close all connections."""
        for relay in self._open:
            relay.close()


@pytest.fixture
def relays(tmp_path: Path) -> Iterator[Relays]:
    """A broker with RabbitMQ's dialect, for which such programs are written."""
    (tmp_path / "run").mkdir()
    settings, announce = tmp_path / "f.toml", tmp_path / "announce"
    settings.write_text('[broker]\ndialect = "rabbitmq"\n[auth]\ncheckers = ["memory:guest:guest"]')
    with processes(tmp_path / "run") as start:
        begin: Start = start
        arguments = ["--config", str(settings), "--endpoint", LOOPBACK]
        process = begin(TWIST, *arguments, "--announce", str(announce))
        [where] = announced(process, announce)
        relays = Relays(where)
        yield relays
        relays.close()


def test_the_system_session_logs_in_with_heart_beats(relays: Relays) -> None:
    connected = relays.connection().connect(system=True)
    assert connected.command == "CONNECTED"
    assert connected.headers["version"] == "1.2"
    assert connected.headers["heart-beat"] == "1000,1000"


def test_heart_beats_keep_the_system_session(relays: Relays) -> None:
    system = relays.connection()
    assert system.connect(system=True, beats="1000,1000").command == "CONNECTED"
    system.write("\n")
    system.wait_for_beat()
    system.write("\n")
    system.subscribe("1", "/topic/prices")


def test_a_wrong_login_is_refused(relays: Relays) -> None:
    relay = relays.connection()
    relay.write("CONNECT\naccept-version:1.2\nlogin:guest\npasscode:no\nhost:/\n\n")
    answer = relay.receive()
    assert (answer.command, answer.headers["stompkit-code"]) == ("ERROR", "not-authenticated")


def test_what_the_server_sends_reaches_all_of_its_clients(relays: Relays) -> None:
    system = relays.session(system=True)
    clients = [relays.session() for _ in range(3)]
    for client in clients:
        client.subscribe("sub-0", "/topic/prices.stock.*")
    system.send("/topic/prices.stock.ACME", '{"price":17.5,"currency":"€"}')
    for client in clients:
        message = client.receive()
        assert message.headers["subscription"] == "sub-0"
        assert message.headers["content-type"] == "application/json"
        assert message.body.decode() == '{"price":17.5,"currency":"€"}'


@pytest.mark.parametrize("prefix", ["/queue/position-updates", "/exchange/amq.direct/errors"])
def test_a_users_queue_is_the_users(relays: Relays, prefix: str) -> None:
    """Spring translates ``/user/queue/NAME`` to the name and the session of the WebSocket."""
    system = relays.session(system=True)
    mine, yours = f"{prefix}-user4f1c2d", f"{prefix}-user9a8b7c"
    first, second = relays.session(), relays.session()
    headers = {"auto_delete": "true", "durable": "false", "exclusive": "false"}
    first.subscribe("sub-1", mine, **headers)
    second.subscribe("sub-1", yours, **headers)
    system.send(yours, '{"for":"you"}')
    system.send(mine, '{"for":"me"}')
    assert first.receive().body == b'{"for":"me"}'
    assert second.receive().body == b'{"for":"you"}'


def test_a_queue_of_its_own_name_keeps_what_comes_while_the_client_is_away(
    relays: Relays,
) -> None:
    system = relays.session(system=True)
    headers = {"durable": "true", "auto_delete": "false", "x_queue_name": "news-of-joe"}
    client = relays.session()
    client.subscribe("sub-2", "/topic/news", **headers)
    client.receipt("DISCONNECT\n\n", "bye")
    client.close()
    system.receipt("SEND\ndestination:/topic/news\ncontent-length:2\n\n{}", "1")
    again = relays.session()
    again.subscribe("sub-7", "/topic/news", **headers)
    message = again.receive()
    assert (message.headers["subscription"], message.body) == ("sub-7", b"{}")


def test_persistent_messages_are_acknowledged_as_clients_ask(relays: Relays) -> None:
    system, client = relays.session(system=True), relays.session()
    client.subscribe("sub-3", "/queue/orders", ack="client-individual", persistent="true")
    system.receipt("SEND\ndestination:/queue/orders\npersistent:true\n\n{}", "1")
    message = client.receive()
    assert message.headers["persistent"] == "true"
    client.receipt(f"ACK\nid:{message.headers['ack']}\n\n", "2")
    client.receipt("UNSUBSCRIBE\nid:sub-3\n\n", "3")


def test_an_unsubscribed_users_queue_gets_no_more(relays: Relays) -> None:
    system, client = relays.session(system=True), relays.session()
    client.subscribe("sub-4", "/queue/errors-user1", auto_delete="true")
    client.receipt("UNSUBSCRIBE\nid:sub-4\n\n", "u")
    client.subscribe("sub-5", "/topic/all")
    system.receipt("SEND\ndestination:/queue/errors-user1\n\nlate", "1")
    system.send("/topic/all", "on")
    assert client.receive().headers["subscription"] == "sub-5"
