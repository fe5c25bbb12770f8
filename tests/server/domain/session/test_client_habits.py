"""Peculiarities of client libraries in other languages: frames, headers and dialects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogPublisher

from stompkit.frames import VERSIONS, Tolerance
from stompkit.server import BrokerConfig
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.failing import KINDS, FailingStore, HeldRunner, everything, failing_store

QUEUE, TOPIC = "/queue/a", "/topic/a"
DIALECTS = ("activemq", "artemis", "rabbitmq")
#: Spellings of both booleans that some language writes.
SPELLINGS = [(True, "true"), (True, "True"), (True, "TRUE"), (False, "False"), (False, "FALSE")]
NO_BOOLEANS = ["", "yes", "1", "0", " true", "false ", "tru", "None"]


def refusal(client: MemoryClient) -> str | None:
    return None if client.error is None else client.error.headers["stompkit-code"]


# The line feed after a frame.


def every_frame(broker: MemoryBroker, version: str) -> bytes:
    """Return the bytes of a session in which the broker sends each of its frames."""
    client = broker.client(version)
    client.publish(QUEUE, b"to be browsed")
    client.subscribe(QUEUE, id="b", browser="true")
    client.subscribe(QUEUE, id="s")
    client.publish(QUEUE, b"a\0b", receipt="r", note="x:y")
    client.subscribe(TOPIC, id="t", ack="client")
    client.publish(TOPIC, receipt="q")
    client.send("COMMIT", transaction="unknown")
    assert {frame.command for frame in client.frames} == {
        *("CONNECTED", "MESSAGE", "RECEIPT", "ERROR")
    }
    return client.octets


@pytest.mark.parametrize("version", VERSIONS)
def test_a_line_feed_follows_each_frame(version: str) -> None:
    broker = MemoryBroker()
    octets = every_frame(broker, version)
    assert octets.endswith(b"\0\n")
    # Each frame follows the line feed of the one before, without further bytes between.
    assert octets.replace(b"a\0b", b"").count(b"\0") == octets.count(b"\0\n")
    assert b"\0\n\n" not in octets


@pytest.mark.parametrize("version", VERSIONS)
def test_the_line_feed_can_be_left_out(version: str) -> None:
    octets = every_frame(MemoryBroker(BrokerConfig(eol_after_frames=False)), version)
    assert octets.endswith(b"\0")
    assert b"\0\n" not in octets
    assert octets.replace(b"\0", b"\0\n") == every_frame_with_eol_without_ids(version, octets)


def every_frame_with_eol_without_ids(version: str, like: bytes) -> bytes:
    """Return the same session with line feeds, with the identifiers of another broker."""
    octets = every_frame(MemoryBroker(), version)
    boot, other = (_boot(each) for each in (octets, like))
    return octets.replace(b"a\0b", b"a\0\nb").replace(boot, other)


def _boot(octets: bytes) -> bytes:
    """Return the common prefix of all identifiers of a broker."""
    return octets.partition(b"session:")[2].partition(b"-")[0]


def test_the_line_feed_is_no_heart_beat() -> None:
    broker = MemoryBroker(BrokerConfig(heart_beat_ms=(1000, 1000)))
    client = broker.client(heart_beat="0,1000")
    assert client.beats == 0
    client.send("BEGIN", transaction="t", receipt="r")
    assert client.beats == 0
    broker.clock.advance(1.0)
    assert client.beats == 1


def test_a_change_of_the_setting_is_for_new_connections() -> None:
    broker = MemoryBroker()
    old = broker.client()
    broker.broker.reload(BrokerConfig(eol_after_frames=False))
    new = broker.client()
    for client in (old, new):
        client.subscribe(TOPIC)
    old.publish(TOPIC, b"x")
    assert old.octets.endswith(b"x\0\n")
    assert new.octets.endswith(b"x\0")


# Booleans.


def collects(broker: MemoryBroker, **headers: str) -> bool:
    """Return True if a subscription with these headers collects messages while disconnected."""
    client = broker.client()
    client.subscribe(TOPIC, id="s", **headers)
    assert refusal(client) is None
    client.close()
    broker.client().publish(TOPIC, b"x")
    return any(queue.messages for queue in broker.broker.hosts[""].durables.values())


@pytest.mark.parametrize(("value", "text"), SPELLINGS)
@pytest.mark.parametrize("header", ["durable", "persistent"])
def test_durable_is_read_in_any_case(header: str, text: str, *, value: bool) -> None:
    assert collects(MemoryBroker(), **{header: text}) is value


@pytest.mark.parametrize(("value", "text"), SPELLINGS)
def test_auto_delete_is_read_in_any_case(text: str, *, value: bool) -> None:
    assert collects(MemoryBroker(), durable="true", auto_delete=text) is not value


@pytest.mark.parametrize(("value", "text"), SPELLINGS)
def test_browser_is_read_in_any_case(text: str, *, value: bool) -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.publish(QUEUE, b"x")
    client.subscribe(QUEUE, browser=text)
    assert ("browser" in client.take("MESSAGE")[-1].headers) is value


@pytest.mark.parametrize(("value", "text"), SPELLINGS)
@pytest.mark.parametrize("header", ["exclusive", "activemq.exclusive"])
def test_exclusive_is_read_in_any_case(header: str, text: str, *, value: bool) -> None:
    broker = MemoryBroker()
    first, second = broker.client(), broker.client()
    for client in (first, second):
        client.subscribe(QUEUE, **{header: text})
    for body in (b"1", b"2"):
        first.publish(QUEUE, body)
    assert first.bodies() == ([b"1", b"2"] if value else [b"1"])
    assert second.bodies() == ([] if value else [b"2"])


@pytest.mark.parametrize("text", NO_BOOLEANS)
@pytest.mark.parametrize("destination", [QUEUE, TOPIC, "/queue/a.>"])
@pytest.mark.parametrize(
    "header",
    [
        *("durable", "persistent", "auto-delete", "exclusive", "browser"),
        *("activemq.exclusive", "no-local", "activemq.noLocal"),
    ],
)
def test_what_is_no_boolean_is_refused(header: str, destination: str, text: str) -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.send("SUBSCRIBE", {"destination": destination, "id": "s", "receipt": "r", header: text})
    assert refusal(client) == "bad-header"
    assert client.error is not None
    assert header in client.error.headers["message"]
    assert client.error.headers["receipt-id"] == "r"
    assert broker.destinations == {}


@pytest.mark.parametrize("text", NO_BOOLEANS)
def test_unsubscribe_refuses_what_is_no_boolean(text: str) -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe(TOPIC, id="s", durable="true")
    client.send("UNSUBSCRIBE", id="s", durable=text)
    assert refusal(client) == "bad-header"
    assert len(broker.broker.hosts[""].durables) == 1


# content-length of frames without a body.


def copying_ack(broker: MemoryBroker, version: str) -> MemoryClient:
    """Return a client that copies all headers of a MESSAGE into its ACK, then sends BEGIN."""
    client = broker.client(version)
    client.subscribe(QUEUE, id="s", ack="client")
    client.publish(QUEUE, b"a body of some length")
    [message] = client.take("MESSAGE")
    headers = dict(message.headers) | {"receipt": "ack"}
    if "ack" in headers:
        headers["id"] = headers["ack"]
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    client.write(f"ACK\n{lines}\n\0".encode())
    client.write(b"BEGIN\ntransaction:t\nreceipt:next\n\n\0")
    return client


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dialect", ["stompkit", "plain", *DIALECTS])
def test_the_length_in_a_copied_ack_is_ignored(dialect: str, version: str) -> None:
    broker = MemoryBroker(BrokerConfig(dialect=dialect))  # type: ignore[arg-type]
    client = copying_ack(broker, version)
    assert [f.headers["receipt-id"] for f in client.take("RECEIPT")] == ["ack", "next"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_dialects_ignore_it_however_strict_the_broker_is(dialect: str) -> None:
    config = BrokerConfig(dialect=dialect, tolerance=Tolerance.NONE)  # type: ignore[arg-type]
    client = copying_ack(MemoryBroker(config), "1.2")
    assert len(client.take("RECEIPT")) == 2


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_strict_broker_refuses_it_at_once(version: str) -> None:
    client = copying_ack(MemoryBroker(BrokerConfig(tolerance=Tolerance.NONE)), version)
    assert refusal(client) == "body-not-allowed"
    assert client.error is not None
    assert client.error.headers["receipt-id"] == "ack"


# The RECEIPT of a durable SUBSCRIBE.


def away(broker: MemoryBroker, selector: str = "") -> None:
    """Create a durable subscription, which collects three messages."""
    client = broker.client()
    client.subscribe(TOPIC, id="s", durable="true")
    client.close()
    for body in (b"1", b"2", b"3"):
        broker.client().publish(TOPIC, body)


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
@pytest.mark.parametrize("kind", ["none", *KINDS])
def test_the_receipt_of_a_durable_subscription_comes_before_its_messages(
    kind: str, ack: str, tmp_path: Path
) -> None:
    broker = MemoryBroker(store=None if kind == "none" else failing_store(kind, tmp_path))
    away(broker)
    client = broker.client()
    client.take()
    client.subscribe(TOPIC, id="s", durable="true", ack=ack, receipt="r")
    assert [f.command for f in client.take()] == ["RECEIPT", "MESSAGE", "MESSAGE", "MESSAGE"]
    broker.client().publish(TOPIC, b"4")
    assert client.bodies() == [b"4"]


def test_nothing_is_delivered_before_the_store_has_a_durable_subscription() -> None:
    runner = HeldRunner()
    broker = MemoryBroker(store=MemoryStore(), runner=runner)
    runner.go_on()
    away(broker)
    runner.is_held = True
    client = broker.client()
    client.subscribe(TOPIC, id="s", durable="true", receipt="r")
    assert client.take("MESSAGE") == []
    runner.go_on()
    assert [frame.command for frame in client.frames[1:]] == ["RECEIPT", *["MESSAGE"] * 3]


def test_others_who_share_it_get_messages_while_one_more_joins() -> None:
    runner = HeldRunner()
    broker = MemoryBroker(store=MemoryStore(), runner=runner)
    runner.go_on()
    first, second = broker.client(), broker.client()
    first.subscribe(TOPIC, id="s", durable="true", ack="client", prefetch_count="1")
    away_sender = broker.client()
    for body in (b"1", b"2"):
        away_sender.publish(TOPIC, body)
    [message] = first.take("MESSAGE")
    runner.is_held = True
    second.subscribe(TOPIC, id="s", durable="true", receipt="r")
    first.ack(message)
    assert first.bodies() == [b"2"]
    runner.go_on()
    assert [frame.command for frame in second.frames[1:]] == ["RECEIPT"]


def test_a_durable_subscription_that_the_store_refuses_delivers_nothing() -> None:
    store = FailingStore()
    broker = MemoryBroker(store=store)
    away(broker)
    store.fails = everything
    client = broker.client()
    client.subscribe(TOPIC, id="s", durable="true", receipt="r")
    assert [frame.command for frame in client.frames[1:]] == ["ERROR"]
    store.fails = lambda _: False
    again = broker.client()
    again.subscribe(TOPIC, id="s", durable="true")
    assert again.bodies() == [b"1", b"2", b"3"]


# Dialects.


@pytest.mark.parametrize("dialect", ["activemq", "rabbitmq"])
def test_a_name_without_a_slash_is_a_queue(dialect: str) -> None:
    broker = MemoryBroker(BrokerConfig(dialect=dialect))  # type: ignore[arg-type]
    client = broker.client()
    client.publish("orders.eu", b"x")
    client.subscribe("/queue/orders.eu")
    assert client.bodies() == [b"x"]
    client.publish("/queue/orders.eu", b"y")
    client.send("UNSUBSCRIBE", id="0")
    client.subscribe("orders.eu", id="1")
    assert client.bodies() == [b"y"]


def activemq(**settings: object) -> MemoryBroker:
    """Return a broker with ActiveMQ's dialect."""
    return MemoryBroker(BrokerConfig(dialect="activemq").changed(**settings))


def test_activemq_queues_can_have_slashes_in_their_names() -> None:
    client = activemq().client()
    client.subscribe("a/b")
    client.publish("/queue/a/b", b"x")
    assert client.bodies() == [b"x"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("a.b.>", "a.b", True),
        ("a.b.>", "a.b.c", True),
        ("a.b.>", "a.b.c.d", True),
        ("a.b.>", "a", False),
        ("a.b.>", "a.bc", False),
        ("*.k.>", "x.k", True),
        ("*.k.>", "k", False),
        (">", "a", True),
    ],
)
def test_activemq_patterns_match_the_level_itself(
    kind: str, pattern: str, name: str, when: str, *, matches: bool
) -> None:
    broker = activemq()
    client = broker.client()
    destination = f"/{kind}/{name}"
    if when == "before":
        # The destination exists before the subscription.
        broker.client().subscribe(destination, id="other", selector="FALSE")
    client.subscribe(f"/{kind}/{pattern}")
    client.publish(destination, b"x")
    assert client.bodies() == ([b"x"] if matches else [])


def test_activemq_patterns_of_durable_subscriptions_match_the_level_itself() -> None:
    store = MemoryStore()
    broker = activemq()
    broker = MemoryBroker(broker.broker.config, store=store)
    client = broker.client()
    client.subscribe("/topic/a.>", id="s", durable="true")
    client.close()
    broker.client().publish("/topic/a", b"1")
    broker.broker.close()
    again = MemoryBroker(broker.broker.config, store=store, clock=broker.clock)
    again.client().publish("/topic/a", b"2")
    client = again.client()
    client.subscribe("/topic/a.>", id="s", durable="true")
    assert client.bodies() == [b"1", b"2"]


@pytest.mark.parametrize("spelling", [" /queue/a", "/queue/a ", "\t/queue/a \t", " a "])
def test_activemq_names_are_trimmed(spelling: str) -> None:
    client = activemq().client()
    client.subscribe(spelling)
    client.publish(QUEUE, b"x")
    assert client.bodies() == [b"x"]


def test_activemq_headers_of_1_0_are_trimmed() -> None:
    client = activemq().client("1.0")
    client.write(b"SUBSCRIBE\ndestination: /queue/a \nack: client \nid: s \n\n\0")
    client.write(b"SEND\ndestination: /queue/a\nnote: x \n\nbody\0")
    [message] = client.take("MESSAGE")
    assert message.headers["note"] == "x"


def test_a_prefetch_of_nothing_is_the_least_that_there_is() -> None:
    """ActiveMQ's prefetch of 0 is for clients that pull; here it means one message at a time."""
    broker = MemoryBroker()
    client = broker.client()
    for body in (b"1", b"2"):
        client.publish(QUEUE, body)
    client.send(
        "SUBSCRIBE",
        {"destination": QUEUE, "id": "s", "ack": "client", "activemq.prefetchSize": "0"},
    )
    [message] = client.take("MESSAGE")
    client.ack(message)
    assert client.bodies() == [b"2"]


def test_a_prefetch_count_of_nothing_is_all_that_there_is() -> None:
    client = MemoryBroker().client()
    for number in range(200):
        client.publish(QUEUE, b"%d" % number)
    client.subscribe(QUEUE, ack="client", prefetch_count="0")
    assert len(client.bodies()) == 200


@pytest.mark.parametrize("dialect", ["activemq", "artemis"])
@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        ("my-prop = 'x'", True),
        ("my-prop = 'y'", False),
        ("NOT my-prop = 'y' AND n - m = 1", True),
        ("n-1 = 4", True),
        ("hyphenated_props:my-prop = 'x'", True),
        ("\"my-prop\" = 'x'", True),
        ("JMSCorrelationID = 'c'", True),
        (" n = 5 ", True),
    ],
)
@pytest.mark.parametrize("destination", ["/queue/s", "/topic/s"])
def test_names_in_selectors_can_have_hyphens(
    destination: str, selector: str, dialect: str, *, taken: bool
) -> None:
    client = MemoryBroker(BrokerConfig(dialect=dialect)).client()  # type: ignore[arg-type]
    client.subscribe(destination, selector=selector)
    headers = {"destination": destination, "my-prop": "x", "n": "5", "m": "4"}
    client.send("SEND", headers | {"correlation-id": "c"}, b"body")
    assert client.bodies() == ([b"body"] if taken else [])


def test_elsewhere_a_hyphen_is_a_minus_sign() -> None:
    client = MemoryBroker().client()
    client.subscribe(QUEUE, selector="a-b = 1")
    client.send("SEND", {"destination": QUEUE, "a": "3", "b": "2", "a-b": "7"}, b"body")
    assert client.bodies() == [b"body"]


def test_a_durable_selector_with_hyphens_means_the_same_in_another_dialect() -> None:
    store = MemoryStore()
    broker = MemoryBroker(BrokerConfig(dialect="activemq"), store=store)
    client = broker.client()
    client.subscribe(TOPIC, id="s", durable="true", selector="my-prop = 'x'")
    broker.broker.close()
    again = MemoryBroker(store=store, clock=broker.clock)
    again.client().send("SEND", {"destination": TOPIC, "my-prop": "x"}, b"taken")
    again.client().send("SEND", {"destination": TOPIC, "my-prop": "y"}, b"not taken")
    client = again.client()
    client.subscribe(TOPIC, id="s", durable="true", selector="hyphenated_props:my-prop = 'x'")
    assert client.bodies() == [b"taken"]


@pytest.mark.parametrize("selector", ["", " ", "\t "])
@pytest.mark.parametrize("destination", [QUEUE, TOPIC])
@pytest.mark.parametrize("dialect", ["stompkit", "activemq"])
def test_a_selector_with_nothing_in_it_is_none(
    dialect: str, destination: str, selector: str
) -> None:
    client = MemoryBroker(BrokerConfig(dialect=dialect)).client()  # type: ignore[arg-type]
    client.subscribe(destination, selector=selector)
    client.publish(destination, b"x")
    assert client.bodies() == [b"x"]


# Surprising behaviour is logged, once for each destination.


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The warnings that are logged meanwhile."""
    lines: list[str] = []

    def observe(event: LogEvent) -> None:
        if event["log_level"] is LogLevel.warn:
            lines.append(formatEvent(event))

    observer = cast("ILogObserver", observe)
    globalLogPublisher.addObserver(observer)
    yield lines
    globalLogPublisher.removeObserver(observer)


def test_a_topic_that_loses_messages_of_a_slow_reader_is_logged(logged: list[str]) -> None:
    broker = MemoryBroker(BrokerConfig(max_topic_backlog=1))
    for topic in ("/topic/a", "/topic/b"):
        reader = broker.client()
        reader.subscribe(topic)
        reader.stop_reading()
        for _ in range(10):
            broker.client().publish(topic, b"x" * 1000, receipt="r")
    # The first client and the twelfth.
    told = [line.partition(" too slowly")[0] for line in logged]
    assert told == ["127.0.0.1:50001 reads '/topic/a'", "127.0.0.1:50012 reads '/topic/b'"]
    assert all("receipts" in line and "max_topic_backlog" in line for line in logged)


@pytest.mark.parametrize("header", ["no-local", "activemq.noLocal"])
def test_no_local_is_logged(header: str, logged: list[str]) -> None:
    broker = MemoryBroker()
    for _ in range(2):
        client = broker.client()
        client.subscribe(TOPIC, **{header: "True"})
        client.publish(TOPIC, b"own")
        assert client.bodies() == [b"own"]
    client.subscribe("/topic/other", id="1", **{header: "false"})
    [line] = logged
    assert line.startswith("'/topic/a': ")
    assert "no-local" in line


@pytest.mark.parametrize("name", ["PERIOD", "REPEAT", "CRON"])
def test_a_repetition_is_logged_and_delivered_once(name: str, logged: list[str]) -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe(QUEUE)
    for _ in range(2):
        client.send("SEND", {"destination": QUEUE, f"AMQ_SCHEDULED_{name}": "5"}, b"x")
    broker.clock.advance(100.0)
    assert client.bodies() == [b"x", b"x"]
    [line] = logged
    assert line.startswith("'/queue/a': ")
    assert "_CRON" in line


def test_repetitions_are_logged_for_each_destination_of_one_client(logged: list[str]) -> None:
    """The codec recognises the headers of later messages."""
    client = MemoryBroker().client()
    for destination in ("/queue/b", QUEUE):
        for number in range(20):
            headers = {"destination": destination, "AMQ_SCHEDULED_REPEAT": str(number)}
            client.send("SEND", headers)
    assert [line.partition(":")[0] for line in logged] == ["'/queue/b'", "'/queue/a'"]


def test_a_transaction_that_frees_no_slot_is_logged(logged: list[str]) -> None:
    broker = MemoryBroker(BrokerConfig(flow="one-in-flight"))
    client = broker.client()
    for body in (b"1", b"2", b"3"):
        client.publish(QUEUE, body)
    client.subscribe(QUEUE, ack="client")
    for number in range(2):
        [message] = client.take("MESSAGE")
        client.send("BEGIN", transaction=f"{number}")
        client.ack(message, transaction=f"{number}")
        assert client.take("MESSAGE") == []
        client.send("COMMIT", transaction=f"{number}")
    [line] = logged
    assert line.startswith("'/queue/a': ")
    assert "COMMIT" in line


def test_lines_for_destinations_without_end_are_bounded(logged: list[str]) -> None:
    client = MemoryBroker(BrokerConfig(max_subscriptions=2_000)).client()
    for number in range(1_100):
        client.subscribe(f"/topic/{number}", id=f"{number}", no_local="true")
    assert len(logged) == 1_001
    assert "not logged" in logged[-1]
