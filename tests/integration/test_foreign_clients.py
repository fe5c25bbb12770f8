"""Client libraries of other languages against the broker as a real process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from stompkit.frames import VERSIONS, Frame
from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.effort import in_matrix
from tests.integration.clients.driver import LIBRARIES, ForeignClient, LibraryMissing
from tests.optional import report_missing

ALL_OCTETS = bytes(range(256))
ESCAPED = {"a:b": "a\\cb", "a\nb": "a\\nb", "\\": "\\\\", "\\:\n:\\": "\\\\\\c\\n\\c\\\\"}

#: Values that may be encoded differently.
DIFFERENT = [
    name for name, library in LIBRARIES.items() if library.websocket not in ("binary", "split")
]

Commands = Callable[[str], tuple[str, ...]]
Connect = Callable[..., ForeignClient]

every_library = pytest.mark.parametrize("library", LIBRARIES)
#: Tests of the codec cover the differences of versions; the matrix covers them for libraries.
every_version = pytest.mark.parametrize("version", [*map(in_matrix, VERSIONS[:-1]), VERSIONS[-1]])
#: Each library sends once and receives once.
PAIRS = [
    (sender, receiver)
    if DIFFERENT.index(receiver) == (number + 1) % len(DIFFERENT)
    else in_matrix(sender, receiver)
    for number, sender in enumerate(DIFFERENT)
    for receiver in DIFFERENT
]


@pytest.fixture(scope="session")
def commands(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """A function that returns the command of a library's program, installed on first use.

    A missing library skips the test, or fails it, as a missing broker does, if CI installs it.
    """
    found: dict[str, tuple[str, ...] | LibraryMissing] = {}

    def command(name: str) -> tuple[str, ...]:
        if name not in found:
            try:
                found[name] = LIBRARIES[name].install(tmp_path_factory.mktemp("client"))
            except LibraryMissing as missing:
                found[name] = missing
        result = found[name]
        if isinstance(result, LibraryMissing):
            report_missing(
                pytestconfig, f"{name} is not installed: {result}", LIBRARIES[name].package
            )
        return result

    return command


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """One broker for all tests of this file."""
    running = launch(LaunchConfig(name="stompkit", websocket=True))
    yield running
    running.stop()
    assert "Traceback" not in running.log


@pytest.fixture
def connect(broker: RunningBroker, commands: Commands) -> Iterator[Connect]:
    """A function that connects clients, and ends those that are left."""
    with ExitStack() as clients:

        def connect(name: str, version: str, heart_beat: str = "0,0") -> ForeignClient:
            client = ForeignClient(LIBRARIES[name], commands(name), broker, version, heart_beat)
            clients.callback(client.leave)
            return client

        yield connect


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A unique name for destinations."""
    return str(request.node.name).replace(":", ".")  # not every client can escape


@every_library
@every_version
def test_login_negotiates_the_version(connect: Connect, library: str, version: str) -> None:
    client = connect(library, version)
    assert client.connected.command == "CONNECTED"
    assert client.connected.headers["version"] == version


@every_library
def test_the_highest_version_in_common_is_taken(connect: Connect, library: str, name: str) -> None:
    client = connect(library, ",".join(VERSIONS))
    assert client.connected.headers["version"] == "1.2"
    client.subscribe(f"/queue/{name}", "client")
    client.send(f"/queue/{name}", "x")
    client.answer("ack", client.receive())


@every_library
@every_version
def test_text_is_sent_and_received(connect: Connect, library: str, version: str, name: str) -> None:
    client = connect(library, version)
    client.subscribe(f"/queue/{name}", subscription="1")
    client.subscribe(f"/topic/{name}", subscription="2")
    text = "Grüße, 世界 \U0001f680"
    for kind, subscription in (("queue", "1"), ("topic", "2")):
        destination = f"/{kind}/{name}"
        client.send(destination, text, {"content-type": "text/plain", "x": "ü"})
        message = client.receive()
        assert message.body == text.encode()
        assert message.headers["destination"] == destination
        assert message.headers["subscription"] == subscription
        assert message.headers["content-type"] == "text/plain"
        assert message.headers["x"] == "ü"


@every_version
@pytest.mark.parametrize(("sender", "receiver"), PAIRS)
def test_binary_bodies_arrive_octet_for_octet(
    connect: Connect, sender: str, receiver: str, version: str, name: str
) -> None:
    producer, consumer = connect(sender, version), connect(receiver, version)
    consumer.subscribe(f"/queue/{name}")
    bodies = [ALL_OCTETS, b"", b"\0", b"\n\n\0\n", ALL_OCTETS * 800]
    for body in bodies:
        producer.send(f"/queue/{name}", body)
    assert consumer.bodies(len(bodies)) == bodies


@pytest.mark.parametrize(
    ("library", "version"),
    [(name, version) for name, library in LIBRARIES.items() for version in library.escaping],
)
def test_header_values_survive_escaping(
    connect: Connect, library: str, version: str, name: str
) -> None:
    client, plain = connect(library, version), connect("Net::Stomp", version)
    client.subscribe(f"/topic/{name}")
    plain.subscribe(f"/topic/{name}")
    values = ESCAPED | ({"\r\n": "\\r\\n"} if version == "1.2" else {})
    for value, escaped in values.items():
        # A library with escaping reads the original value, one without reads the bytes on the wire.
        client.send(f"/topic/{name}", "x", {"x": value})
        assert client.receive().headers["x"] == value
        assert plain.receive().headers["x"] == escaped
        plain.send(f"/topic/{name}", "x", {"x": escaped})
        assert client.receive().headers["x"] == value
        assert plain.receive().headers["x"] == escaped


@every_library
def test_a_colon_in_a_header_of_1_0_is_as_it_is(connect: Connect, library: str, name: str) -> None:
    client = connect(library, "1.0")
    client.subscribe(f"/queue/{name}")
    client.send(f"/queue/{name}", "x", {"x": "a:b::"})
    assert client.receive().headers["x"] == "a:b::"


@pytest.mark.parametrize("library", ["Net::Stomp", "stomp.js"])
def test_a_raw_colon_of_a_client_of_1_1_is_escaped_for_others(
    connect: Connect, library: str, name: str
) -> None:
    client, other = connect(library, "1.1"), connect("ruby-stomp", "1.1")
    client.subscribe(f"/topic/{name}")
    other.subscribe(f"/topic/{name}")
    client.send(f"/topic/{name}", "x", {"x": "a:b"})
    assert other.receive().headers["x"] == "a:b"
    assert client.receive().headers["x"] == "a\\cb"


@every_library
@every_version
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_what_was_not_acknowledged_comes_again(
    connect: Connect, library: str, version: str, mode: str, name: str
) -> None:
    client = connect(library, version)
    client.subscribe(f"/queue/{name}", mode)
    for letter in "abcd":  # Net::Stomp sends nothing for "0"
        client.send(f"/queue/{name}", letter)
    messages = [client.receive() for _ in range(4)]
    client.answer("ack", messages[1])
    client.kill()
    other = connect(library, version)
    other.subscribe(f"/queue/{name}", mode)
    wanted = [b"c", b"d"] if mode == "client" else [b"a", b"c", b"d"]
    again = [other.receive() for _ in wanted]
    assert [message.body for message in again] == wanted
    assert all(message.headers["redelivered"] == "true" for message in again)
    # Another message would have arrived before this one, which keeps its place at the end.
    other.send(f"/queue/{name}", "last")
    assert other.bodies(1) == [b"last"]


@every_library
@pytest.mark.parametrize("version", [in_matrix("1.1"), "1.2"])
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_nack_brings_a_message_back_and_then_to_the_dead_letters(
    connect: Connect, library: str, version: str, mode: str, name: str
) -> None:
    client = connect(library, version)
    client.subscribe(f"/queue/{name}", mode, subscription="1")
    client.subscribe(f"/dlq/{name}", subscription="2")
    client.send(f"/queue/{name}", "poison")
    for delivery in range(1, 7):
        message = client.receive()
        assert message.headers["subscription"] == "1"
        assert message.headers.get("delivery-count", "1") == str(delivery)
        client.answer("nack", message)
    letter = client.receive()
    assert letter.headers["subscription"] == "2"
    assert letter.headers["original-destination"] == f"/queue/{name}"
    assert letter.body == b"poison"


@every_library
@every_version
def test_transactions_commit_and_abort(
    connect: Connect, library: str, version: str, name: str
) -> None:
    client = connect(library, version)
    client.subscribe(f"/queue/{name}", "client-individual")
    client.send(f"/queue/{name}", "before")
    message = client.receive()
    client.transaction("begin", "aborted")
    client.send(f"/queue/{name}", "dropped", {"transaction": "aborted"})
    client.answer("ack", message, {"transaction": "aborted"})
    client.transaction("abort", "aborted")
    client.transaction("begin", "committed")
    client.send(f"/queue/{name}", "in it", {"transaction": "committed"})
    client.answer("ack", message, {"transaction": "committed"})
    client.send(f"/queue/{name}", "beside it")
    client.transaction("commit", "committed")
    assert client.bodies(2) == [b"beside it", b"in it"]
    client.kill()
    other = connect(library, version)
    other.subscribe(f"/queue/{name}")
    assert other.bodies(2) == [b"beside it", b"in it"]


@every_library
@every_version
def test_a_subscription_ends(connect: Connect, library: str, version: str, name: str) -> None:
    client = connect(library, version)
    client.subscribe(f"/queue/{name}", subscription="1")
    client.subscribe(f"/topic/{name}", subscription="2")
    client.ask("unsubscribe", {"destination": f"/topic/{name}", "id": "2"})
    client.send(f"/topic/{name}", "for nobody")
    client.send(f"/queue/{name}", "for the other")
    assert client.bodies(1) == [b"for the other"]


@pytest.mark.parametrize("library", ["ruby-stomp", "go-stomp", "stomp.js", "stomp.js-text"])
def test_heart_beats_keep_idle_connections(connect: Connect, library: str, name: str) -> None:
    clients = [connect(library, version, "500,500") for version in ("1.1", "1.2")]
    # Beats are sent every second, the broker's minimum. Without the client's own ones the broker
    # would have closed the connection before the last.
    for client in clients:
        assert client.connected.headers["heart-beat"] == "1000,1000"
        for _ in range(5):
            client.call("beat")
    for client in clients:
        destination = f"/queue/{name}.{client.connected.headers['version']}"
        client.subscribe(destination)
        client.send(destination, "x")
        assert client.bodies(1) == [b"x"]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_heart_beats_are_read_over_by_a_client_that_asked_for_them_only(
    connect: Connect, version: str, name: str
) -> None:
    client = connect("Net::Stomp", version, "0,500")
    client.call("beat")
    client.subscribe(f"/queue/{name}")
    client.send(f"/queue/{name}", "x")
    assert client.bodies(1) == [b"x"]


@every_library
@every_version
def test_disconnect_is_answered_before_the_end(
    connect: Connect, library: str, version: str
) -> None:
    client = connect(library, version)
    answer = client.call("disconnect", {"receipt": "bye"})
    assert answer == Frame("RECEIPT", {"receipt-id": "bye"})
    client.leave()


@every_library
@every_version
def test_an_error_is_read_before_the_end(connect: Connect, library: str, version: str) -> None:
    client = connect(library, version)
    error = client.call("send", {"destination": "nowhere", "receipt": "mistake"}, text="x")
    assert error.command == "ERROR"
    assert error.headers["stompkit-code"] == "unknown-destination"
    assert error.headers["receipt-id"] == "mistake"
    assert client.call("receive") is None
    client.leave()


@every_version
def test_net_stomp_sends_with_receipt_and_in_transactions_of_its_own(
    connect: Connect, version: str, name: str
) -> None:
    producer, consumer = connect("Net::Stomp", version), connect("Net::Stomp", version)
    for method in ("send_with_receipt", "send_transactional"):
        assert producer.call(method, {"destination": f"/queue/{name}"}, text=method) == 1
    consumer.subscribe(f"/queue/{name}")
    assert consumer.bodies(2) == [b"send_with_receipt", b"send_transactional"]
