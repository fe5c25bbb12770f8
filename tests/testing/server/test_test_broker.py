"""The launched test broker: its control socket, its clock, and its reset."""

from __future__ import annotations

import json
import resource
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stompkit.frames import Frame, FrameDecoder, encode
from tests.server.processes import DEADLINE_S, LOOPBACK, TWIST, TWISTD, Process, announced

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "AF_UNIX"), reason="there are no Unix sockets here"
)

HOUR_S = 3_600.0
QUEUE = "/queue/a"
stores = pytest.mark.parametrize("store", ["memory", "lmdb"])
all_stores = pytest.mark.parametrize("store", ["memory", "lmdb", "sqlite"])


class Client:
    """A session of 1.2 on a socket, frame by frame."""

    def __init__(self, port: int, *, login: bool = True, **headers: str) -> None:
        """Connect; ``headers`` are further ones of CONNECT, with ``_`` for ``-``."""
        self._socket = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []
        self._count = 0
        self.is_at_end = False
        if login:
            self.send("CONNECT", **{"accept_version": "1.2", "host": "x", **headers})
            assert self.next().command == "CONNECTED"
            self._decoder.negotiated("1.2")

    def send(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        """Send a frame."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._socket.sendall(encode(Frame(command, named, body), "1.2"))

    def ask(self, command: str, body: bytes = b"", /, **headers: str) -> list[Frame]:
        """Send a frame with a receipt, and wait for it; return the frames before it."""
        self.send(command, body, receipt="asked", **headers)
        before = []
        while (frame := self.next()).command != "RECEIPT":
            before.append(frame)
        return before

    def publish(self, destination: str, body: bytes = b"x", /, **headers: str) -> None:
        """Send a message, and wait for its receipt."""
        assert self.ask("SEND", body, destination=destination, **headers) == []

    def subscribe(self, destination: str, id: str = "0", ack: str = "auto", **more: str) -> None:
        """Subscribe; messages may arrive at once."""
        self.send("SUBSCRIBE", destination=destination, id=id, ack=ack, **more)

    def messages(self) -> list[Frame]:
        """Return the messages before the next receipt."""
        return self.ask("SEND", destination="/topic/nobody")

    def received(self, count: int) -> list[Frame]:
        """Wait for this many messages; return them and all further ones as :meth:`messages` does.

        A store on a disk is read while the receipt may already be in flight.
        """
        return [self.next() for _ in range(count)] + self.messages()

    def next(self) -> Frame:
        """Return the next frame; fail if the stream ends before it."""
        while not self._frames:
            data = self._socket.recv(65_536)
            if not data:
                self.is_at_end = True
                raise ConnectionError("the broker has closed the connection")
            frames = self._decoder.feed(data)
            self._count += len(frames)
            self._frames += frames
        return self._frames.pop(0)

    @property
    def beats(self) -> int:
        """Number of line ends between frames, without the one after each frame."""
        return self._decoder.eols - self._count

    def wait_for_beat(self) -> None:
        """Wait for a line end; fail after other data or the timeout."""
        assert self._socket.recv(1) == b"\n"

    def ended_by(self) -> str:
        """Return the code of the ERROR that ends the connection after any messages."""
        while (frame := self.next()).command == "MESSAGE":
            pass
        assert frame.command == "ERROR", frame
        with pytest.raises(ConnectionError):
            self.next()
        assert self.is_at_end
        return frame.headers["stompkit-code"]

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class Control:
    """One connection to a control socket."""

    def __init__(self, path: Path) -> None:
        """Connect."""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(DEADLINE_S)
        self._socket.connect(str(path))
        self._received = b""

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._socket.sendall(data)

    def answer(self) -> dict[str, Any]:
        """Return the next answer; fail if the stream ends before it."""
        while b"\n" not in self._received:
            data = self._socket.recv(65_536)
            if not data:
                raise ConnectionError("the broker has closed the control connection")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, do: str, **fields: object) -> dict[str, Any]:
        """Send a request; return the fields of the answer."""
        self.write(json.dumps({"do": do, **fields}).encode() + b"\n")
        answer = self.answer()
        assert answer.pop("ok", None) is True, answer
        return answer

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class Broker:
    """A broker in a child process, which can be restarted on the same data."""

    def __init__(self, directory: Path) -> None:
        """Prepare; all files of the broker are in ``directory``."""
        self._directory = directory
        self._starts = 0
        self._opened: list[Client | Control] = []
        self.path = directory / "control"
        self.port = 0

    def start(self, store: str = "memory", settings: str = "", *more: str) -> Broker:
        """Start it with a kind of store and the text of a settings file; wait until it listens."""
        self._starts += 1
        announce = self._directory / f"announce.{self._starts}"
        if store == "sqlite":
            url = f"sqlite:///{self._directory / 'messages.sqlite'}"
            settings += f'\n[store]\nkind = "sqlalchemy"\nurl = "{url}"\n'
        file = self._directory / "stompkit.toml"
        file.write_text(settings, encoding="utf-8")
        command = [*TWIST, "stompkit-test", "--endpoint", LOOPBACK, "--config", str(file)]
        command += ["--announce", str(announce), "--control", str(self.path)]
        if store == "lmdb":
            command += ["--data", str(self._directory / "data")]
        self.process = Process([*command, *more], self._directory)
        [endpoint] = announced(self.process, announce)
        self.port = endpoint["port"]
        self.control = self.connect()
        return self

    def client(self, *, login: bool = True, **headers: str) -> Client:
        """Return a client, which is closed with the broker."""
        client = Client(self.port, login=login, **headers)
        self._opened.append(client)
        return client

    def connect(self) -> Control:
        """Return a connection to the control socket, which is closed with the broker."""
        control = Control(self.path)
        self._opened.append(control)
        return control

    def ask(self, do: str, **fields: object) -> dict[str, Any]:
        """Send a request to the control socket."""
        return self.control.ask(do, **fields)

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self.ask("advance", seconds=seconds)

    def destinations(self) -> dict[str, dict[str, Any]]:
        """Return the destinations by name."""
        return {each["name"]: each for each in self.ask("destinations")["destinations"]}

    def stop(self) -> None:
        """Stop it, if it runs, and close its connections."""
        for each in self._opened:
            each.close()
        if self._starts and self.process.popen.poll() is None:
            self.process.kill()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that is not started."""
    broker = Broker(tmp_path)
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker in memory with default settings."""
    broker = Broker(tmp_path_factory.mktemp("shared")).start()
    yield broker
    broker.stop()


@pytest.fixture
def running(shared: Broker) -> Broker:
    """The shared broker after a reset."""
    shared.ask("reset")
    return shared


# The control socket.


def test_the_socket_is_for_its_user_only_and_ends_with_the_broker(broker: Broker) -> None:
    broker.start()
    mode = broker.path.stat().st_mode
    assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
    broker.process.terminate()
    assert not broker.path.exists()


def test_requests_are_answered_in_order(running: Broker) -> None:
    control = running.control
    for do in (b'"now"', b'"advance","seconds":60', b'"now"', b'"reset"', b'"now"', b'"none"'):
        control.write(b'{"do":%b}\n' % do)
    answers = [control.answer() for _ in range(6)]
    assert [answer.get("offset") for answer in answers] == [0.0, None, 60.0, None, 0.0, None]
    assert [answer.get("ok") for answer in answers] == [True] * 5 + [None]
    assert answers[3] == {"ok": True}


def test_several_connections_are_answered_each_its_own(broker: Broker) -> None:
    broker.start("lmdb")
    controls = [broker.control, broker.connect(), broker.connect()]
    for _ in range(20):
        for control, request in zip(
            controls, (b'"advance","seconds":1', b'"reset"', b'"connections"'), strict=True
        ):
            control.write(b'{"do":%b}\n' % request)
    for control, fields in zip(
        controls, ({"ok", "now"}, {"ok"}, {"ok", "connections"}), strict=True
    ):
        assert [set(control.answer()) for _ in range(20)] == [fields] * 20


def test_a_request_may_come_in_pieces(running: Broker) -> None:
    control = running.control
    for octet in b'{"do": "reset"}':
        control.write(bytes([octet]))
        # An incomplete line does not affect other connections.
        running.connect().ask("now")
    control.write(b"\n")
    assert control.answer() == {"ok": True}


def test_a_request_that_makes_no_sense_is_told_and_the_next_is_done(running: Broker) -> None:
    control = running.control
    for line, said in (
        (b"reset", "malformed"),
        (b"", "truncated"),
        (b"\xff\x00", "malformed"),
        (b"[]", "object"),
        (b"{}", "`do`"),
        (b'{"do": "dance"}', "'dance'"),
        (b'{"do": "advance"}', "`seconds`"),
        (b'{"do": "advance", "seconds": "1"}', "$.seconds"),
        (b'{"do": "advance", "seconds": -1}', ">= 0"),
        (b'{"do": "advance", "seconds": NaN}', "malformed"),
        (b'{"do": "reset", "soon": true}', "`soon`"),
    ):
        control.write(line + b"\n")
        answer = control.answer()
        assert list(answer) == ["error"]
        assert said in answer["error"]
    assert control.ask("now")["offset"] == 0.0


def test_a_line_without_end_is_read_no_further(running: Broker) -> None:
    control = running.connect()
    with pytest.raises(OSError):
        for _ in range(1_000):
            control.write(b"x" * 10_000)
    running.ask("reset")


def test_a_socket_that_a_killed_broker_has_left_is_replaced(broker: Broker) -> None:
    broker.start().process.kill()
    assert broker.path.exists()
    broker.start().ask("reset")


def test_a_file_in_its_place_is_left_alone(broker: Broker, tmp_path: Path) -> None:
    broker.path.write_text("precious")
    process = Process([*TWIST, "stompkit-test", "--control", str(broker.path)], tmp_path)
    assert process.ended() != 0
    assert f"stompkit: cannot listen on {broker.path}" in process.log
    assert broker.path.read_text() == "precious"


def test_a_socket_of_another_broker_is_left_to_it(broker: Broker, tmp_path: Path) -> None:
    broker.start()
    command = [*TWIST, "stompkit-test", "--endpoint", LOOPBACK, "--control", str(broker.path)]
    process = Process(command, tmp_path)
    assert process.ended() != 0
    assert f"another broker listens on {broker.path}: stop it" in process.log
    assert broker.connect().ask("connections")["connections"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--control", ""], "--control takes the path of a socket"),
        (["--control", "/" + "x" * 200], "cannot listen on /xxx"),
        (["--heart-beat", "x"], "--heart-beat is wrong"),
        (["--no-such-option"], "--no-such-option not recognized"),
        (["--quirk", "no-such-broker"], "--quirk: "),
    ],
)
def test_a_mistake_in_the_options_is_told(tmp_path: Path, arguments: list[str], said: str) -> None:
    process = Process([*TWIST, "stompkit-test", *arguments], tmp_path)
    assert process.ended() != 0
    assert said in process.log


@pytest.mark.parametrize("command", [TWIST, TWISTD], ids=["twist", "twistd"])
def test_it_does_what_the_broker_does_also_without_a_socket(
    broker: Broker, tmp_path: Path, command: list[str]
) -> None:
    announce = tmp_path / "announce"
    arguments = ["--endpoint", LOOPBACK, "--announce", str(announce), "--prefetch", "1"]
    process = Process([*command, "stompkit-test", *arguments], tmp_path)
    try:
        [endpoint] = announced(process, announce)
        client = Client(endpoint["port"])
        for body in (b"1", b"2"):
            client.publish(QUEUE, body)
        client.subscribe(QUEUE, ack="client")
        assert [message.body for message in client.messages()] == [b"1"]
        client.close()
    finally:
        process.kill()


def test_what_there_is_is_listed(broker: Broker) -> None:
    broker.start("memory", '[broker]\nhosts = ["one", "two"]\n')
    client = broker.client(host="two")
    assert broker.ask("connections")["connections"] == [
        {
            "peer": "127.0.0.1",
            "version": "1.2",
            "user": "",
            "host": "two",
            "subscriptions": 0,
            "in_flight": 0,
        }
    ]
    for _ in range(3):
        client.publish(QUEUE)
    client.publish(QUEUE, delay="100000")
    client.subscribe(QUEUE, ack="client", prefetch_count="2")
    assert len(client.messages()) == 2
    client.subscribe("/topic/t", id="t")
    client.subscribe("/temp-queue/q", id="q")
    client.messages()
    found = broker.ask("destinations")["destinations"]
    temporary = found.pop()
    assert temporary["name"].startswith("/temp-queue/")
    assert (temporary["kind"], temporary["consumers"]) == ("temp-queue", 1)
    topic = {"name": "/topic/t", "kind": "topic", "host": "two", "ready": 0, "in_flight": 0}
    queue = {"name": QUEUE, "kind": "queue", "host": "two", "ready": 1, "in_flight": 2}
    assert found == [
        {**queue, "delayed": 1, "consumers": 1},
        {**topic, "delayed": 0, "consumers": 1},
    ]
    [state] = broker.ask("connections")["connections"]
    assert (state["subscriptions"], state["in_flight"]) == (3, 2)
    stranger = broker.client(login=False)
    # Its first bytes arrive no later than requests sent after their answer.
    stranger.send("CONNECT", accept_version="1.2", host="three")
    assert stranger.ended_by() == "unknown-host"


@pytest.mark.parametrize("quirk", ["rabbitmq", "morbidq"])
def test_what_tests_have_a_say_in_they_have_with_deviations_too(broker: Broker, quirk: str) -> None:
    broker.start("memory", "", "--quirk", quirk)
    broker.advance(HOUR_S)
    assert broker.ask("now")["offset"] == HOUR_S
    with socket.create_connection(("127.0.0.1", broker.port), DEADLINE_S) as client:
        client.sendall(b"CONNECT\nhost:/\nlogin:guest\npasscode:guest\n\n\0\n")
        assert b"CONNECTED" in client.recv(1_000)
        broker.ask("reset")
        while client.recv(1_000):
            pass
    assert broker.ask("now")["offset"] == 0.0
    assert broker.destinations() == {}


# The clock.


def test_the_clock_is_the_real_one_at_first(running: Broker) -> None:
    before = time.time()
    answer = running.ask("now")
    assert before <= answer["now"] <= time.time()
    assert answer["offset"] == 0.0


def test_the_clock_goes_on_from_where_it_was_moved_to(running: Broker) -> None:
    before = time.time()
    moved = running.ask("advance", seconds=HOUR_S)["now"]
    moved = max(moved, running.ask("advance", seconds=0.5)["now"])
    answer = running.ask("now")
    assert answer["offset"] == HOUR_S + 0.5
    assert before + HOUR_S + 0.5 <= moved <= answer["now"] <= time.time() + HOUR_S + 0.5


def test_a_reset_puts_the_clock_back(broker: Broker) -> None:
    broker.start("memory", "[broker]\nheart_beat_ms = [50, 0]\n")
    broker.advance(HOUR_S)
    broker.ask("reset")
    before = time.time()
    answer = broker.ask("now")
    assert answer["offset"] == 0.0
    assert before <= answer["now"] <= time.time()
    # Deadlines depend on the real time again.
    broker.client(heart_beat="0,50").wait_for_beat()


def test_a_client_that_breaks_its_promise_of_heart_beats_is_given_up(running: Broker) -> None:
    silent, other = running.client(heart_beat="600000,0"), running.client()
    running.advance(1_000.0)
    assert silent.messages() == []
    running.advance(1_300.0)
    assert silent.ended_by() == "heart-beat-timeout"
    assert other.messages() == []


def test_the_broker_sends_all_its_heart_beats(broker: Broker) -> None:
    broker.start("memory", "[broker]\nheart_beat_ms = [600000, 0]\n")
    client = broker.client(heart_beat="0,600000")
    # Heart-beats are sent early: after 0.6 of the interval.
    broker.advance(16.5 * 360.0)
    client.messages()
    assert client.beats == 16


def test_a_client_that_does_not_log_in_is_closed(broker: Broker) -> None:
    broker.start("memory", "[broker]\nlogin_timeout_s = 60\n")
    client = broker.client(login=False)
    # A connection has been accepted once the next one has been answered.
    broker.client()
    broker.advance(61.0)
    assert client.ended_by() == "login-timeout"


@stores
def test_messages_expire(broker: Broker, store: str) -> None:
    broker.start(store, '[broker]\nexpired = "dead-letter"\n')
    client = broker.client()
    expires = str(round((broker.ask("now")["now"] + HOUR_S) * 1000))
    client.publish(QUEUE, b"short", expires=expires)
    client.publish(QUEUE, b"long")
    broker.advance(HOUR_S / 2)
    assert broker.destinations()[QUEUE]["ready"] == 2
    broker.advance(HOUR_S)
    assert broker.destinations()[QUEUE]["ready"] == 1
    client.subscribe("/dlq/a")
    assert [message.body for message in client.received(1)] == [b"short"]


@stores
def test_delayed_messages_come_in_order_when_they_are_due(broker: Broker, store: str) -> None:
    broker.start(store)
    client = broker.client()
    for minutes in (30, 10, 20):
        client.publish(QUEUE, b"%d" % minutes, delay=str(minutes * 60_000))
    client.subscribe(QUEUE)
    broker.advance(9 * 60.0)
    assert client.messages() == []
    broker.advance(16 * 60.0)
    assert [message.body for message in client.received(2)] == [b"10", b"20"]
    assert broker.destinations()[QUEUE]["delayed"] == 1
    broker.advance(HOUR_S)
    assert [message.body for message in client.received(1)] == [b"30"]


@stores
def test_what_is_not_acknowledged_is_delivered_again_and_again(broker: Broker, store: str) -> None:
    broker.start(store, "[broker]\nack_timeout_s = 600\n")
    client = broker.client()
    client.publish(QUEUE, delay="600000")
    client.subscribe(QUEUE, ack="client-individual")
    # It is due after 10 minutes, and redelivered after 20, 30 and 40, all at once.
    broker.advance(45 * 60.0)
    found = [message.headers.get("delivery-count", "1") for message in client.received(4)]
    assert found == ["1", "2", "3", "4"]


@stores
def test_time_moves_while_clients_send_without_end(broker: Broker, store: str) -> None:
    broker.start(store)
    client, sender = broker.client(), broker.client()
    client.publish(QUEUE, b"due", delay="600000")
    client.subscribe(QUEUE)
    is_over = threading.Event()

    def send() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            # Enough at a time to keep the store busy meanwhile.
            receipt = {"receipt": "r"} if number % 50 == 0 else {}
            sender.send("SEND", destination=f"/queue/{number % 7}", **receipt)
            if receipt:
                sender.next()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        broker.advance(601.0)
        assert [message.body for message in client.received(1)] == [b"due"]
    finally:
        is_over.set()
        thread.join()


def test_transactions_time_out(broker: Broker) -> None:
    broker.start("memory", "[broker]\ntransaction_timeout_s = 600\n")
    client = broker.client()
    client.ask("BEGIN", transaction="t")
    broker.advance(601.0)
    assert client.ended_by() == "transaction-timeout"


@stores
def test_what_waits_is_not_lost_when_the_clock_moves(broker: Broker, store: str) -> None:
    broker.start(store)
    client = broker.client()
    client.publish(QUEUE)
    for _ in range(30):
        broker.advance(HOUR_S)
    assert broker.destinations()[QUEUE]["ready"] == 1
    client.subscribe(QUEUE)
    assert len(client.received(1)) == 1


# Reset.

FULL = """
[broker]
when_full = "block"
ack_timeout_s = 600

[[destination]]
name = "/queue/full"
max_queue_messages = 1

[[destination]]
name = "/fanout/f"
children = ["/queue/b", "/queue/c"]
"""


def use_everything(broker: Broker) -> list[Client]:
    """Create clients in every possible state."""
    worker, waiting, reader, away = (
        broker.client(),
        broker.client(),
        broker.client(client_id="r"),
        broker.client(client_id="a"),
    )
    for number in range(20):
        worker.publish(QUEUE, b"%d" % number)
    worker.publish(QUEUE, delay="60000")
    worker.publish(QUEUE, expires=str(round(time.time() + 60) * 1000))
    worker.publish("/fanout/f")
    worker.subscribe(QUEUE, ack="client", prefetch_count="5")
    found = worker.received(5)
    assert len(found) == 5
    worker.ask("NACK", id=found[1].headers["ack"], requeue="false")
    worker.ask("BEGIN", transaction="open")
    worker.ask("SEND", b"x", destination="/queue/b", transaction="open")
    worker.subscribe("/temp-queue/t", id="temporary")
    worker.messages()
    for _ in range(2):
        waiting.send("SEND", destination="/queue/full")
    for client in (reader, away):
        client.send(
            "SUBSCRIBE",
            destination="/topic/news",
            id="d",
            ack="client",
            **{"activemq.subscriptionName": "n"},
        )
        client.messages()
    away.close()
    worker.publish("/topic/news", b"old")
    # When a message is in the queue, the blocked producer has been processed, too.
    watched = broker.client()
    watched.publish("/queue/watched")
    while "/queue/full" not in broker.destinations():
        watched.messages()
    return [worker, waiting, reader, watched]


def is_as_new(broker: Broker) -> None:
    """Fail if any earlier state remains."""
    assert broker.ask("connections")["connections"] == []
    fanout = {"/fanout/f"} if "/fanout/f" in broker.destinations() else set()
    assert set(broker.destinations()) == fanout
    client = broker.client(client_id="r")
    client.send(
        "SUBSCRIBE",
        destination="/topic/news",
        id="d",
        **{"activemq.subscriptionName": "n"},
    )
    for number, name in enumerate((QUEUE, "/queue/b", "/queue/full", "/dlq/a", "/queue/watched")):
        client.subscribe(name, id=str(number))
    assert client.messages() == []
    broker.advance(2 * HOUR_S)
    assert client.messages() == []
    client.publish("/queue/new", b"new")
    client.subscribe("/queue/new", id="new")
    [message] = client.received(1)
    assert message.body == b"new"


@all_stores
def test_a_reset_forgets_everything(broker: Broker, store: str) -> None:
    broker.start(store, FULL)
    for _ in range(2):
        clients = use_everything(broker)
        broker.ask("reset")
        assert [client.ended_by() for client in clients] == ["reset"] * len(clients)
        is_as_new(broker)
        broker.ask("reset")


@all_stores
def test_what_is_reset_does_not_come_back_with_another_broker(broker: Broker, store: str) -> None:
    broker.start(store, FULL)
    use_everything(broker)
    broker.ask("reset")
    broker.client().publish("/queue/kept", b"kept")
    broker.process.kill()
    broker.start(store, FULL)
    expected = set() if store == "memory" else {"/queue/kept"}
    assert set(broker.destinations()) == {"/fanout/f"} | expected
    broker.ask("reset")
    is_as_new(broker)


@stores
def test_a_reset_cuts_in_on_clients_that_are_sending(broker: Broker, store: str) -> None:
    broker.start(store)
    for _ in range(5):
        senders = [broker.client() for _ in range(3)]
        for sender in senders:
            for number in range(200):
                sender.send("SEND", destination=f"/queue/{number % 5}")
        broker.ask("reset")
        assert [sender.ended_by() for sender in senders] == ["reset"] * 3
        assert broker.destinations() == {}
        client = broker.client()
        client.publish(QUEUE, b"new")
        client.subscribe(QUEUE)
        assert [message.body for message in client.received(1)] == [b"new"]


def test_a_reset_after_the_clock_was_moved_leaves_no_deadline_behind(broker: Broker) -> None:
    broker.start("lmdb", FULL)
    broker.advance(10 * HOUR_S)
    use_everything(broker)
    broker.advance(1.0)
    broker.ask("reset")
    is_as_new(broker)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of other processes are Linux's")
def test_a_store_that_can_not_be_emptied_is_told(broker: Broker) -> None:
    broker.start("lmdb")
    client = broker.client()
    client.publish(QUEUE, b"old")
    pid = broker.process.popen.pid
    unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, unlimited[1]))
    broker.control.write(b'{"do": "reset"}\n')
    assert "no room" in broker.control.answer()["error"]
    assert client.ended_by() == "reset"
    assert broker.destinations() == {}
    resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
    broker.ask("reset")
    broker.process.kill()
    assert broker.start("lmdb").destinations() == {}
