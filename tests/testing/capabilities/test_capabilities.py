"""The detected capabilities of each broker, and the cost of their detection."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from stompkit.frames import VERSIONS
from stompkit.testing import BrokerError, LaunchConfig, RunningBroker, given, launch
from stompkit.testing.capabilities.capabilities import Capabilities
from stompkit.testing.client import StompClient
from stompkit.testing.plugin import BrokerFactory
from tests.conformance.scripted import Behaviour, Line, ScriptedServer, connected, frame
from tests.effort import in_matrix

LONG_S = 60.0

#: Capabilities of every launched broker, and actions of tests on it.
COMMON = {
    *VERSIONS,
    "receipt",
    "heart-beat",
    "ack",
    "transactions",
    "ack-in-transaction",
    "topic",
    "restart",
    "kill",
    "pause",
    *(["disk-full"] if sys.platform == "linux" else []),
}
#: Additional capabilities of each; it lacks all others.
SPECIAL = {
    "stompkit": {
        "client-individual",
        "cumulative-ack",
        "nack",
        "nack-requeue",
        "redelivered",
        "wildcard",
        "durable",
        "selector",
        "browser",
        "temporary",
        "expiry",
        "delay",
        # Its queues have priorities only if the configuration sets them.
    },
    "coilmq": set[str](),
    "activemq": {
        "client-individual",
        "cumulative-ack",
        "nack",
        "redelivered",
        "wildcard",
        "durable",
        "selector",
        "browser",
        "temporary",
        "expiry",
        "delay",
        "persistence",
    },
    "rabbitmq": {
        "client-individual",
        "cumulative-ack",
        "nack",
        "nack-requeue",
        "redelivered",
        "wildcard",
        "durable",
        "temporary",
        "expiry",
        "priority",
        "persistence",
    },
}
#: A part of the reason, for results with more than yes or no.
REASONS = {
    "stompkit": {
        "1.2": "stompkit/",
        "durable": "client-id and activemq.subscriptionName",
        "priority": "two messages came in the order in which they were sent",
        "persistence": "launched without persistent=True",
        "temporary": "with a subscription",
        "clock": "not launched with control=True",
        "frames": "LaunchConfig(frames=True)",
        "quirks": "not launched with quirks",
    },
    "coilmq": {
        "client-individual": "neither of two messages came back",
        "cumulative-ack": "only 1 of three messages came",
        "nack": "the broker said ERROR 'Nack implementation incomplete'",
        "redelivered": "no header redelivered",
        "temporary": "came as it was sent",
    },
    "activemq": {
        "durable": "client-id and activemq.subscriptionName",
        "nack-requeue": "did not come again",
        "expiry": "the header expires",
        "persistence": "however it is launched",
    },
    "rabbitmq": {
        "durable": "durable:true, auto-delete:false and id",
        "expiry": "the header expiration",
        "priority": "x-max-priority",
        "selector": "a message that its selector rules out",
        "temporary": "without a subscription",
        "heart-beat": "heart-beat:1000,0",
    },
}


#: Brokers of the quick lane, and the others.
BROKERS = [name if name in ("stompkit", "coilmq") else in_matrix(name) for name in SPECIAL]


@pytest.fixture(scope="module", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, stomp_broker_factory: BrokerFactory
) -> Iterator[RunningBroker]:
    """Each of the brokers, launched without the options that tests usually set."""
    with stomp_broker_factory(request.param, frames=False, control=False) as broker:
        yield broker


def test_a_broker_has_what_it_is_known_to_have_and_nothing_else(broker: RunningBroker) -> None:
    capabilities = broker.capabilities
    found = capabilities.as_dict()
    expected = {name: name in COMMON | SPECIAL[broker.name] for name in capabilities.names}
    wrong = [f"{name}: {capabilities.why(name)}" for name in found if found[name] != expected[name]]
    assert not wrong
    assert found == expected


def test_every_answer_has_its_reason(broker: RunningBroker) -> None:
    capabilities = broker.capabilities
    for name in capabilities.names:
        why = capabilities.why(name)
        assert why
        assert "\n" not in why
    for name, part in REASONS[broker.name].items():
        assert part in capabilities.why(name), name


def test_a_broker_that_has_been_asked_everything_is_as_good_as_new(broker: RunningBroker) -> None:
    # Repeated: no state of the first probe changes a result.
    again = Capabilities(broker)
    assert again.as_dict() == broker.capabilities.as_dict()
    with StompClient.connect(
        broker.host,
        broker.port,
        login=broker.login,
        passcode=broker.passcode,
        vhost=broker.vhost,
        timeout_s=LONG_S,
    ) as client:
        client.subscribe("/queue/as-new")
        client.send("/queue/as-new", b"1")
        assert client.receive().body == b"1"


# The probes.


def receipts(line: Line) -> None:
    """Run a session of a broker that sends receipts and returns each message to its sender."""
    connected(line)
    delivers(line, receipts=True)


def delivers(line: Line, *, receipts: bool) -> None:
    """Return messages to their senders, on an open connection."""
    for command, headers in line.frames():
        if command == "SEND":
            own = {"destination": headers["destination"], "subscription": "s1", "message-id": "1"}
            line.send(frame("MESSAGE", own))
        if receipts and "receipt" in headers:
            line.send(frame("RECEIPT", {"receipt-id": headers["receipt"]}))


@pytest.fixture
def scripted() -> Iterator[Callable[[Behaviour], tuple[ScriptedServer, Capabilities]]]:
    """Run a scripted server; return its capabilities."""
    servers: list[ScriptedServer] = []

    def make(behaviour: Behaviour) -> tuple[ScriptedServer, Capabilities]:
        servers.append(ScriptedServer(behaviour))
        return servers[-1], given("127.0.0.1", servers[-1].port).capabilities

    yield make
    for server in servers:
        server.stop()


Scripted = Callable[[Behaviour], tuple[ScriptedServer, Capabilities]]


def test_only_what_is_asked_for_is_probed_and_only_once(scripted: Scripted) -> None:
    server, capabilities = scripted(receipts)
    assert server.connections == 0
    assert repr(capabilities) == "<Capabilities of given: nothing asked yet>"
    assert "1.1" in capabilities
    assert server.connections == 1
    assert "1.1" in capabilities
    assert "the broker answered CONNECT with accept-version:1.1" in capabilities.why("1.1")
    assert server.connections == 1
    assert "receipt" in capabilities
    # One connection to find the way of logging in, and one for the probe.
    assert server.connections == 3
    assert repr(capabilities) == "<Capabilities of given: 1.1, receipt>"


def test_an_unknown_name_is_told_with_those_that_there_are(scripted: Scripted) -> None:
    server, capabilities = scripted(receipts)
    with pytest.raises(ValueError, match=r"no capability is called 'nak'; there are: 1\.0, .*nack"):
        assert "nak" in capabilities
    with pytest.raises(ValueError, match="no capability is called 7"):
        assert 7 in capabilities
    with pytest.raises(ValueError, match="no capability is called ''"):
        capabilities.why("")
    assert server.connections == 0


def test_a_broker_without_receipts_is_told_by_what_it_does_answer(scripted: Scripted) -> None:
    def behaviour(line: Line) -> None:
        connected(line)
        delivers(line, receipts=False)

    _, capabilities = scripted(behaviour)
    assert "receipt" not in capabilities
    assert capabilities.why("receipt") == (
        "SUBSCRIBE with a receipt did what it should, but got no RECEIPT"
    )
    # Destinations that may be missing are probed without a receipt.
    assert "topic" not in capabilities


def test_a_broker_that_is_busy_is_given_time(scripted: Scripted) -> None:
    is_idle, is_answered = threading.Event(), threading.Event()

    def behaviour(line: Line) -> None:
        if line.number == 2:
            connected(line)
            line.frame()
            line.send(frame("MESSAGE", {"destination": "/queue/q", "message-id": "1"}))
            # Until the broker is probed for something that every broker supports.
            assert is_idle.wait(LONG_S)
            line.send(frame("RECEIPT", {"receipt-id": "asked"}))
            is_answered.set()
            line.wait()
        connected(line)
        if line.number == 3:
            line.frame()
            is_idle.set()
            assert is_answered.wait(LONG_S)
        delivers(line, receipts=False)

    _, capabilities = scripted(behaviour)
    assert "receipt" in capabilities


def test_a_version_that_is_not_spoken_is_missing_for_the_reason_that_was_given(
    scripted: Scripted,
) -> None:
    def behaviour(line: Line) -> None:
        _, headers = line.frame()
        if headers["accept-version"] == "1.2":
            line.send(frame("CONNECTED", {"version": "1.2"}))
            delivers(line, receipts=True)
        line.send(frame("ERROR", {"message": "1.2 only"}))

    _, capabilities = scripted(behaviour)
    assert "1.1" not in capabilities
    assert capabilities.why("1.1") == "no CONNECTED came: the broker said ERROR '1.2 only'"
    assert "1.2" in capabilities
    # Everything else is probed on the remaining version.
    assert "receipt" in capabilities


def test_a_connection_that_is_closed_over_a_probe_is_an_answer(scripted: Scripted) -> None:
    def behaviour(line: Line) -> None:
        connected(line)
        for command, _ in line.frames():
            if command == "BEGIN":
                return

    _, capabilities = scripted(behaviour)
    assert "transactions" not in capabilities
    assert capabilities.why("transactions") == (
        "no RECEIPT r1 of BEGIN came: the broker closed the connection; what came instead: nothing"
    )


def test_a_broker_that_refuses_sessions_is_not_said_to_lack_anything(scripted: Scripted) -> None:
    is_full = True

    def behaviour(line: Line) -> None:
        if is_full:
            line.frame()
            line.send(frame("ERROR", {"message": "come back later"}))
        else:
            receipts(line)

    server, capabilities = scripted(behaviour)
    with pytest.raises(BrokerError) as caught:
        assert "nack" in capabilities
    assert str(caught.value).startswith(
        f"what the broker at 127.0.0.1 port {server.port} can do is not known: no CONNECTED came:"
        " the broker said ERROR 'come back later'"
    )
    # When it does, it is probed again.
    is_full = False
    assert "receipt" in capabilities


def test_a_broker_that_dies_of_a_probe_is_not_said_to_lack_anything(scripted: Scripted) -> None:
    def behaviour(line: Line) -> None:
        if line.number == 1:
            connected(line)
        elif line.number == 2:
            connected(line)
            line.frame()
            server.stop_listening()

    server, capabilities = scripted(behaviour)
    with pytest.raises(BrokerError, match="does not take connections"):
        assert "receipt" in capabilities


def test_nobody_there_is_an_error_and_no_answer() -> None:
    with ScriptedServer(receipts) as server:
        pass
    capabilities = given("127.0.0.1", server.port).capabilities
    with pytest.raises(BrokerError, match="does not take connections"):
        assert "1.2" in capabilities


def test_the_destinations_of_probes_are_named_as_the_broker_wants_them(
    scripted: Scripted,
) -> None:
    seen: set[str] = set()

    def behaviour(line: Line) -> None:
        connected(line)
        for _, headers in line.frames():
            seen.add(headers["destination"])
            return

    server, _ = scripted(behaviour)
    broker = given("127.0.0.1", server.port)
    broker.queue_template = "jms.queue.{}"
    broker.topic_template = "jms.topic.{}"
    capabilities = Capabilities(broker)
    assert "ack" not in capabilities
    assert "topic" not in capabilities
    assert {name.rpartition(".")[0] for name in seen} == {"jms.queue", "jms.topic"}


# Actions of tests on a broker.


def test_somebody_elses_broker_is_out_of_reach(scripted: Scripted) -> None:
    server, capabilities = scripted(receipts)
    for name in ("restart", "kill", "pause", "disk-full", "persistence"):
        assert name not in capabilities
        assert capabilities.why(name) == "somebody else runs given, and its process is out of reach"
    for name in ("reset", "clock", "frames", "quirks"):
        assert name not in capabilities
    assert server.connections == 0


def test_what_a_broker_was_launched_for_is_known_and_probes_are_not_recorded() -> None:
    config = LaunchConfig(persistent=True, control=True, frames=True)
    with launch(config) as broker:
        for name in ("persistence", "reset", "clock", "frames"):
            assert name in broker.capabilities, broker.capabilities.why(name)
        assert "quirks" not in broker.capabilities
        assert "receipt" in broker.capabilities
        assert broker.frames.all == []


def test_messages_are_there_after_a_restart_where_that_is_said(broker: RunningBroker) -> None:
    """The only capability that is not probed, as the probe would disturb all others."""
    with broker.client() as client:
        client.send("/queue/kept", b"kept", persistent="true")
    broker.restart()
    with broker.client() as client:
        client.timeout_s = LONG_S
        client.subscribe("/queue/kept")
        client.send("/queue/kept", b"new")
        is_kept = client.receive().body == b"kept"
    assert is_kept == ("persistence" in broker.capabilities)
