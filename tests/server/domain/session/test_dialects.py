"""Other brokers' spellings of destinations."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stompkit.server import BrokerConfig, Decision, Request
from stompkit.server.login.rights import Rights, RightsAuthoriser
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import refusal, take_one

#: A dialect, a destination in it, and our name of that destination.
SPELLINGS = (
    ("activemq", "queue://a.b", "/queue/a.b"),
    ("activemq", "topic://a.b", "/topic/a.b"),
    ("activemq", "queue/a", "/queue/a"),
    ("activemq", "topic/a", "/topic/a"),
    ("artemis", "jms.queue.a.b", "/queue/a.b"),
    ("artemis", "jms.topic.a.b", "/topic/a.b"),
    ("artemis", "queue://a", "/queue/a"),
    ("artemis", "topic://a", "/topic/a"),
    ("artemis", "a.b", "/queue/a.b"),
    ("artemis", "/a", "/queue/a"),
    ("rabbitmq", "/amq/queue/a", "/queue/a"),
    ("rabbitmq", "/exchange/amq.topic/a.b", "/topic/a.b"),
    ("rabbitmq", "/exchange/logs/a.b", "/topic/logs.a.b"),
    ("rabbitmq", "/exchange/logs", "/topic/logs"),
    ("rabbitmq", "/exchange/amq.topic", "/topic/amq.topic"),
    ("plain", "a", "/queue/a"),
    ("plain", "a/b", "/queue/a/b"),
    ("plain", "queue/a", "/queue/queue/a"),
)
DIALECTS = ("stompkit", "plain", "activemq", "artemis", "rabbitmq")


def broker_of(dialect: str) -> MemoryBroker:
    return MemoryBroker(BrokerConfig().changed(dialect=dialect))


def pair(dialect: str) -> tuple[MemoryClient, MemoryClient]:
    """Return two clients of one broker."""
    broker = broker_of(dialect)
    return broker.client(), broker.client()


@pytest.mark.parametrize(("dialect", "spelling", "name"), SPELLINGS)
def test_a_spelling_stands_for_a_name(dialect: str, spelling: str, name: str) -> None:
    reader, writer = pair(dialect)
    reader.subscribe(name)
    writer.publish(spelling, b"x")
    message = take_one(reader)
    assert message.body == b"x"
    assert message.headers["destination"] == spelling
    reader, writer = pair(dialect)
    reader.subscribe(spelling, id="s")
    writer.publish(name, b"x")
    assert take_one(reader).headers["destination"] == name
    reader.send("UNSUBSCRIBE", id="s")
    assert reader.error is None


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ["/queue/a", "/topic/a", "/dlq/a", "/temp-queue/a"])
def test_our_own_names_always_work(dialect: str, name: str) -> None:
    client = broker_of(dialect).client()
    client.subscribe(name)
    client.publish(name, b"x")
    assert client.bodies() == [b"x"]


@pytest.mark.parametrize(("dialect", "spelling", "name"), SPELLINGS)
def test_in_our_own_dialect_none_of_them_is_known(dialect: str, spelling: str, name: str) -> None:
    client = broker_of("stompkit").client()
    client.publish(spelling, b"x")
    assert refusal(client) == "unknown-destination"


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        ("activemq", ""),
        ("activemq", "/a"),
        ("activemq", "queue://"),
        ("rabbitmq", ""),
        ("rabbitmq", "a/b"),
        ("rabbitmq", "queue://a"),
        ("rabbitmq", "/exchange/"),
        ("rabbitmq", "/amq/queue/"),
        ("artemis", "jms.queue."),
        ("artemis", "/"),
        ("plain", "/a"),
        ("plain", ""),
        ("plain", "/exchange/a"),
    ],
)
@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_what_means_nothing_is_refused(dialect: str, name: str, command: str) -> None:
    client = broker_of(dialect).client()
    client.send(command, {"destination": name, "id": "0"})
    assert refusal(client) == "unknown-destination"


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({}, "queue"),
        ({"destination-type": "ANYCAST"}, "queue"),
        ({"destination-type": "MULTICAST"}, "topic"),
        ({"destination-type": "multicast"}, "topic"),
        ({"subscription-type": "MULTICAST"}, "topic"),
        ({"subscription-type": "ANYCAST"}, "queue"),
    ],
)
def test_artemis_says_the_kind_in_a_header(headers: dict[str, str], kind: str) -> None:
    reader, writer = pair("artemis")
    reader.send("SUBSCRIBE", {"id": "0", "destination": "a"} | headers)
    writer.publish(f"/{kind}/a", b"x")
    assert reader.bodies() == [b"x"]
    reader, writer = pair("artemis")
    reader.subscribe(f"/{kind}/a")
    writer.send("SEND", {"destination": "a"} | headers, b"x")
    assert reader.bodies() == [b"x"]


@pytest.mark.parametrize(
    ("dialect", "pattern", "name"),
    [
        ("activemq", "topic://a.>", "topic://a.b.c"),
        ("artemis", "jms.topic.a.#", "jms.topic.a"),
        ("rabbitmq", "/exchange/amq.topic/a.*", "/exchange/amq.topic/a.b"),
        ("plain", "a.*", "a.b"),
    ],
)
def test_patterns_can_be_spelled_too(dialect: str, pattern: str, name: str) -> None:
    reader, writer = pair(dialect)
    reader.subscribe(pattern)
    writer.publish(name, b"x")
    assert reader.bodies() == [b"x"]


@pytest.mark.parametrize(
    ("dialect", "own", "remote"),
    [
        ("activemq", "temp-queue://mine", "/remote-temp-queue/"),
        ("activemq", "/temp-queue/mine", "/remote-temp-queue/"),
        ("activemq", "temp-topic://mine", "/remote-temp-topic/"),
        ("artemis", "temp-queue://mine", "/remote-temp-queue/"),
        ("rabbitmq", "/temp-queue/mine", "/reply-queue/"),
    ],
)
def test_temporary_destinations_have_their_spellings(dialect: str, own: str, remote: str) -> None:
    broker = broker_of(dialect)
    service, client = broker.client(), broker.client()
    service.subscribe("/queue/service")
    if dialect != "rabbitmq":
        client.subscribe(own)
    client.publish("/queue/service", b"question", reply_to=own)
    name = take_one(service).headers["reply-to"]
    service.publish(name, b"1")
    kind = "/temp-topic/" if "topic" in own else "/temp-queue/"
    service.publish(remote + name.removeprefix(kind), b"2")
    assert client.bodies() == [b"1", b"2"]


def test_transactions_know_the_spellings() -> None:
    reader, writer = pair("activemq")
    reader.subscribe("/queue/a")
    writer.send("BEGIN", transaction="t")
    writer.publish("queue://a", b"x", transaction="t")
    writer.send("COMMIT", transaction="t")
    assert reader.bodies() == [b"x"]


def test_dead_letters_of_a_spelling_are_those_of_the_name() -> None:
    reader, writer = pair("activemq")
    reader.subscribe("queue://a", id="1", ack="client")
    reader.subscribe("/dlq/a", id="2")
    writer.publish("queue://a", b"x")
    reader.nack(take_one(reader), requeue="false")
    letter = take_one(reader)
    assert letter.headers["destination"] == "/dlq/a"
    assert letter.headers["original-destination"] == "/queue/a"


def test_a_1_0_subscription_is_ended_by_the_spelling_it_was_made_with() -> None:
    client = broker_of("activemq").client("1.0")
    client.subscribe("queue://a", id=None)
    client.send("UNSUBSCRIBE", destination="queue://a")
    client.publish("queue://a", b"x")
    assert client.take("MESSAGE") == []
    assert client.error is None


class Rules:
    """An authoriser: everyone may write, and read below level ``a`` and *more*."""

    def __init__(self, *more: str) -> None:
        """Allow reading below ``a``, and of *more* destinations."""
        kinds = ("/queue/a.>", "/topic/a.>", *more)
        self.rights = RightsAuthoriser(
            [
                Rights(destination=">", allow=("create", "write")),
                *(Rights(destination=each, allow=("read",)) for each in kinds),
            ]
        )

    def authorise(self, request: Request, answer: Callable[[Decision], None]) -> None:
        """Decide by the rules."""
        self.rights.authorise(request, answer)


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("is_allowed", [True, False])
def test_the_level_itself_is_read_with_a_right_of_its_own(kind: str, *, is_allowed: bool) -> None:
    more = [f"/{kind}/a"] if is_allowed else []
    broker = MemoryBroker(BrokerConfig(dialect="activemq"), authoriser=Rules(*more))
    reader, writer = broker.client(), broker.client()
    reader.subscribe(f"/{kind}/a.>")
    for name in ("a", "a.b", "a.b.c", "ab"):
        writer.publish(f"/{kind}/{name}", name.encode())
    assert reader.error is None
    assert reader.bodies() == ([b"a"] if is_allowed else []) + [b"a.b", b"a.b.c"]


def test_a_durable_subscription_follows_the_right_to_the_level_itself() -> None:
    rules = Rules("/topic/a")
    store = MemoryStore()
    broker = MemoryBroker(BrokerConfig(dialect="activemq"), authoriser=rules, store=store)
    name = {"activemq.subscriptionName": "n"}

    def again() -> list[bytes]:
        client = broker.client(client_id="c")
        client.subscribe("/topic/a.>", **name)
        bodies = client.bodies()
        assert client.error is None
        client.close()
        for number in ("/topic/a", "/topic/a.b"):
            broker.client().publish(number, number.encode())
        return bodies

    assert again() == []
    rules.rights = Rules().rights
    # Messages collected while that was allowed stay; none is lost.
    assert again() == [b"/topic/a", b"/topic/a.b"]
    assert again() == [b"/topic/a.b"]
    broker.broker.close()
    broker = MemoryBroker(BrokerConfig(dialect="activemq"), authoriser=rules, store=store)
    assert again() == [b"/topic/a.b"]
    rules.rights = Rules("/topic/a").rights
    assert again() == [b"/topic/a.b"]
    assert again() == [b"/topic/a", b"/topic/a.b"]
