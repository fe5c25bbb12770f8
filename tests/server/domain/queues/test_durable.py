"""Durable subscriptions: a topic's messages are kept while the subscriber is away."""

from __future__ import annotations

import pytest

from stompkit.frames import VERSIONS
from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import MakeBroker, publish_all, refusal, take_one
from tests.server.many_queues import numbered

TOPIC = "/topic/news"
DAY_S = 24 * 3600.0

#: Headers of CONNECT and SUBSCRIBE for each way to request a durable subscription.
SPELLINGS = {
    "activemq": ({"client-id": "reader"}, {"activemq.subscriptionName": "mine"}),
    "activemq, as its early clients misspell it": (
        {"client-id": "reader"},
        {"activemq.subcriptionName": "mine"},
    ),
    "artemis": ({"client-id": "reader"}, {"durable-subscription-name": "mine"}),
    "artemis, subscriber": ({"client-id": "reader"}, {"durable-subscriber-name": "mine"}),
    "rabbitmq": ({}, {"durable": "true", "auto-delete": "false"}),
    "rabbitmq, persistent": ({}, {"persistent": "true"}),
}
spellings = pytest.mark.parametrize("spelling", SPELLINGS)
ALONE = ("activemq", "artemis")
SHARED = ("rabbitmq",)


def reader(broker: MemoryBroker, spelling: str = "activemq", version: str = "1.2") -> MemoryClient:
    """Return a client with the identity of the durable subscriber."""
    return broker.client(version, **SPELLINGS[spelling][0])


def subscribe(
    client: MemoryClient,
    spelling: str = "activemq",
    topic: str = TOPIC,
    ack: str = "auto",
    **more: str,
) -> None:
    """Create or resume the durable subscription."""
    client.subscribe(topic, id="s", ack=ack, **SPELLINGS[spelling][1] | more)


def unsubscribe(client: MemoryClient, spelling: str = "activemq", *, durably: bool) -> None:
    """End the durable subscription, or only detach the connection from it."""
    client.send("UNSUBSCRIBE", SPELLINGS[spelling][1] if durably else {}, id="s")


@spellings
@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_sent_while_the_subscriber_is_away_waits_for_it(
    broker_with: MakeBroker, spelling: str, version: str
) -> None:
    broker = broker_with()
    producer = broker.client()
    producer.publish(TOPIC, b"0")
    first = reader(broker, spelling, version)
    subscribe(first, spelling)
    producer.publish(TOPIC, b"1")
    assert first.bodies() == [b"1"]
    first.close()
    publish_all(producer, TOPIC, numbered(2, 4))
    second = reader(broker, spelling, version)
    subscribe(second, spelling)
    producer.publish(TOPIC, b"5")
    assert second.bodies() == numbered(2, 5)
    assert second.error is None


@spellings
def test_unsubscribe_with_its_id_alone_goes_on_collecting(
    broker_with: MakeBroker, spelling: str
) -> None:
    broker = broker_with()
    client = reader(broker, spelling)
    subscribe(client, spelling)
    unsubscribe(client, spelling, durably=False)
    broker.client().publish(TOPIC, b"x")
    assert client.bodies() == []
    subscribe(client, spelling)
    assert client.bodies() == [b"x"]


@spellings
@pytest.mark.parametrize("subscribed", [False, True])
def test_unsubscribe_with_its_headers_removes_it(
    broker_with: MakeBroker, spelling: str, *, subscribed: bool
) -> None:
    broker = broker_with()
    client = reader(broker, spelling)
    subscribe(client, spelling)
    if not subscribed:
        client.close()
        client = reader(broker, spelling)
    broker.client().publish(TOPIC, b"before")
    unsubscribe(client, spelling, durably=True)
    broker.client().publish(TOPIC, b"after")
    assert client.error is None
    assert broker.destinations == {}
    client.take()
    subscribe(client, spelling)
    broker.client().publish(TOPIC, b"anew")
    assert client.bodies() == [b"anew"]


def test_a_subscription_of_1_0_without_an_id_is_removed_by_its_destination() -> None:
    broker = MemoryBroker()
    client = reader(broker, version="1.0")
    client.subscribe(TOPIC, id=None, **SPELLINGS["activemq"][1])
    client.send("UNSUBSCRIBE", SPELLINGS["activemq"][1], destination=TOPIC)
    assert client.error is None
    assert broker.destinations == {}


@spellings
def test_the_headers_of_one_that_is_not_there_remove_nothing(spelling: str) -> None:
    client = reader(MemoryBroker(), spelling)
    unsubscribe(client, spelling, durably=True)
    assert refusal(client) == "unknown-subscription"


# Ownership.


@pytest.mark.parametrize("spelling", [*ALONE])
def test_its_name_is_one_of_the_client_id(broker_with: MakeBroker, spelling: str) -> None:
    broker = broker_with()
    _, headers = SPELLINGS[spelling]
    clients = [broker.client(client_id=name) for name in ("a", "b", "a/b", "b%2Fc")]
    for client in clients:
        client.subscribe(TOPIC, **headers)
    assert [client.error for client in clients] == [None] * 4
    clients[0].close()
    broker.client().publish(TOPIC, b"x")
    assert [client.bodies() for client in clients[1:]] == [[b"x"]] * 3
    again = broker.client(client_id="a")
    again.subscribe(TOPIC, **headers)
    assert again.bodies() == [b"x"]


def test_names_that_run_together_are_not_mixed_up() -> None:
    store = MemoryStore()
    broker = MemoryBroker(store=store)
    for client_id, name in (("a", "b/c"), ("a/b", "c")):
        client = broker.client(client_id=client_id)
        client.send(
            "SUBSCRIBE",
            {"id": "0", "destination": f"{TOPIC}.{name}", "activemq.subscriptionName": name},
        )
        client.close()
    producer = broker.client()
    producer.publish(f"{TOPIC}.b/c", b"of a")
    producer.publish(f"{TOPIC}.c", b"of a/b")
    broker.broker.close()
    broker = MemoryBroker(store=store, clock=broker.clock)
    client = broker.client(client_id="a")
    client.send(
        "SUBSCRIBE",
        {"id": "0", "destination": f"{TOPIC}.b/c", "activemq.subscriptionName": "b/c"},
    )
    assert client.bodies() == [b"of a"]


@pytest.mark.parametrize("connect", [{}, {"client-id": ""}])
@pytest.mark.parametrize("spelling", [*ALONE])
def test_a_name_needs_a_client_id(spelling: str, connect: dict[str, str]) -> None:
    client = MemoryBroker().client(**connect)
    subscribe(client, spelling)
    assert refusal(client) == "missing-header"


def test_rabbitmqs_needs_an_id() -> None:
    client = MemoryBroker().client("1.0")
    client.subscribe(TOPIC, id=None, durable="true", auto_delete="false")
    assert refusal(client) == "missing-header"


@pytest.mark.parametrize("headers", [{"durable": "true", "auto-delete": "true"}, {"durable": "no"}])
def test_half_of_rabbitmqs_headers_ask_for_an_ordinary_one(headers: dict[str, str]) -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe(TOPIC, **headers)
    client.close()
    assert broker.destinations == {}


def test_rabbitmqs_queue_name_goes_before_the_id(broker_with: MakeBroker) -> None:
    broker = broker_with()
    for number in range(2):
        client = broker.client()
        client.subscribe(TOPIC, id=str(number), durable="true", x_queue_name="shared")
        broker.client().publish(TOPIC, b"%d" % number)
        assert client.bodies() == [b"%d" % number]
        client.close()


@pytest.mark.parametrize("spelling", ALONE)
def test_only_one_client_at_a_time_can_use_it(broker_with: MakeBroker, spelling: str) -> None:
    broker = broker_with()
    one, other = reader(broker, spelling), reader(broker, spelling)
    subscribe(one, spelling)
    subscribe(other, spelling)
    assert refusal(other) == "durable-subscription-in-use"
    one.close()
    third = reader(broker, spelling)
    subscribe(third, spelling)
    broker.client().publish(TOPIC, b"x")
    assert third.bodies() == [b"x"]


@pytest.mark.parametrize("spelling", ALONE)
def test_nobody_removes_one_that_another_uses(broker_with: MakeBroker, spelling: str) -> None:
    broker = broker_with()
    one, other = reader(broker, spelling), reader(broker, spelling)
    subscribe(one, spelling)
    unsubscribe(other, spelling, durably=True)
    assert refusal(other) == "durable-subscription-in-use"
    broker.client().publish(TOPIC, b"x")
    assert one.bodies() == [b"x"]


@pytest.mark.parametrize("spelling", SHARED)
def test_several_clients_share_rabbitmqs(broker_with: MakeBroker, spelling: str) -> None:
    broker = broker_with()
    clients = [reader(broker, spelling) for _ in range(2)]
    for client in clients:
        subscribe(client, spelling)
    publish_all(broker.client(), TOPIC, numbered(1, 4))
    assert [client.bodies() for client in clients] == [[b"1", b"3"], [b"2", b"4"]]


@pytest.mark.parametrize("change", [{"topic": "/topic/other"}, {"selector": "a = 'b'"}])
def test_one_that_is_in_use_can_not_be_changed(change: dict[str, str]) -> None:
    broker = MemoryBroker()
    one, other = broker.client(), broker.client()
    subscribe(one, "rabbitmq")
    subscribe(other, "rabbitmq", **change)
    assert refusal(other) == "durable-subscription-in-use"
    broker.client().publish(TOPIC, b"x")
    assert one.bodies() == [b"x"]


# Collected messages.


def test_it_is_a_queue_with_acknowledgements(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = reader(broker)
    subscribe(client, ack="client-individual", prefetch_count="2")
    publish_all(broker.client(), TOPIC, numbered(1, 5))
    first, second = client.take("MESSAGE")
    client.ack(second)
    assert take_one(client).body == b"3"
    client.drop()
    client = reader(broker)
    subscribe(client)
    messages = client.take("MESSAGE")
    assert [each.body for each in messages] == [b"1", b"3", b"4", b"5"]
    assert [each.headers.get("redelivered") for each in messages] == ["true", "true", None, None]
    assert first.headers["message-id"] == messages[0].headers["message-id"]


def test_its_dead_letters_are_found_under_its_name(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = reader(broker)
    subscribe(client, ack="client")
    client.subscribe("/dlq/durable/reader/mine", id="dead")
    broker.client().publish(TOPIC, b"x")
    client.nack(take_one(client), requeue="false")
    letter = take_one(client)
    assert letter.headers["subscription"] == "dead"
    assert letter.headers["original-destination"] == "/durable/reader/mine"


def test_each_durable_subscription_and_each_subscriber_gets_its_copy(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with()
    clients = [broker.client(client_id=str(number)) for number in range(3)]
    for client in clients:
        subscribe(client)
    clients[0].subscribe(TOPIC, id="ordinary")
    broker.client().publish(TOPIC, b"x")
    assert [client.bodies() for client in clients] == [[b"x", b"x"], [b"x"], [b"x"]]


def test_a_selector_says_what_is_collected(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = reader(broker)
    subscribe(client, selector="colour = 'blue'")
    client.close()
    producer = broker.client()
    producer.publish(TOPIC, b"red", colour="red")
    producer.publish(TOPIC, b"blue", colour="blue")
    client = reader(broker)
    subscribe(client, selector="colour = 'blue'")
    assert client.bodies() == [b"blue"]


@pytest.mark.parametrize("change", [{"topic": "/topic/other"}, {"selector": "colour = 'red'"}])
def test_another_selector_or_topic_begins_anew(
    broker_with: MakeBroker, change: dict[str, str]
) -> None:
    broker = broker_with()
    producer, client = broker.client(), reader(broker)
    subscribe(client, selector="colour = 'blue'")
    client.close()
    producer.publish(TOPIC, b"old", colour="blue")
    client = reader(broker)
    subscribe(client, **change)
    producer.publish(change.get("topic", TOPIC), b"new", colour="red")
    producer.publish(TOPIC, b"for the old one", colour="blue")
    assert client.bodies() == [b"new"]


def test_a_selector_that_can_not_be_read_makes_nothing() -> None:
    broker = MemoryBroker()
    client = reader(broker)
    subscribe(client, selector="colour =")
    assert refusal(client) == "bad-selector"
    broker.client().publish(TOPIC, b"x")
    assert broker.destinations == {}


def test_a_pattern_collects_from_topics_made_later_too(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client, producer = reader(broker), broker.client()
    keeper = broker.client()
    keeper.subscribe("/topic/news.old")
    subscribe(client, topic="/topic/news.*")
    client.close()
    producer.publish("/topic/news.old", b"old")
    producer.publish("/topic/news.new", b"new")
    producer.publish("/topic/other", b"other")
    client = reader(broker)
    subscribe(client, topic="/topic/news.*")
    assert client.bodies() == [b"old", b"new"]
    unsubscribe(client, durably=True)
    assert list(broker.destinations) == ["/topic/news.old"]
    producer.publish("/topic/news.new", b"x")
    assert client.take() == []


def test_a_pattern_meets_more_topics_than_there_can_be_destinations(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(max_destinations=20)
    client, producer = reader(broker), broker.client()
    subscribe(client, topic="/topic/>")
    client.close()
    for number in range(200):
        producer.publish(f"/topic/{number}", b"%d" % number)
    client = reader(broker)
    subscribe(client, topic="/topic/>")
    assert client.bodies() == numbered(0, 199)
    assert producer.error is None


def test_a_pattern_that_makes_no_sense_makes_nothing() -> None:
    broker = MemoryBroker()
    client = reader(broker)
    subscribe(client, topic="/topic/>.a")
    assert refusal(client) == "bad-destination"


def test_a_queue_can_be_subscribed_to_with_these_headers_and_is_a_queue() -> None:
    broker = MemoryBroker()
    client = reader(broker)
    subscribe(client, topic="/queue/a")
    broker.client().publish("/queue/a", b"x")
    assert client.bodies() == [b"x"]
    assert list(broker.destinations) == ["/queue/a"]


@pytest.mark.parametrize("setting", ["max_queue_messages", "max_queue_bytes"])
def test_a_full_one_loses_the_oldest_and_no_sender_is_refused(
    broker_with: MakeBroker, setting: str
) -> None:
    size = len("destination" + TOPIC + "content-length" + "1" + "x")
    limit = 3 if setting == "max_queue_messages" else 3 * size
    broker = broker_with(**{setting: limit})
    client, producer = reader(broker), broker.client()
    subscribe(client)
    client.close()
    publish_all(producer, TOPIC, numbered(1, 5))
    producer.publish(TOPIC, b"x" * 1_000 if setting == "max_queue_bytes" else b"6")
    assert producer.error is None
    client = reader(broker)
    subscribe(client)
    # A message that exceeds the limit alone is dropped alone.
    assert client.bodies() == (numbered(3, 5) if setting == "max_queue_bytes" else numbered(4, 6))
    producer.publish(TOPIC, b"7")
    assert client.bodies() == [b"7"]


def test_transactions_and_delays_go_for_it_too(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client, producer = reader(broker), broker.client()
    subscribe(client)
    client.close()
    producer.send("BEGIN", transaction="t")
    producer.publish(TOPIC, b"later", delay="1000", transaction="t")
    producer.publish(TOPIC, b"now", transaction="t")
    producer.publish(TOPIC, b"short-lived", expiration="500", transaction="t")
    producer.send("COMMIT", transaction="t")
    broker.clock.advance(1.0)
    client = reader(broker)
    subscribe(client)
    assert client.bodies() == [b"now", b"later"]


# Permissions and limits.


@pytest.mark.parametrize(
    ("topic", "code"), [(TOPIC, None), ("/topic/other", "unknown-destination")]
)
def test_only_topics_of_the_configuration_where_others_may_not_be_made(
    topic: str, code: str | None
) -> None:
    table = DestinationConfig(name=TOPIC)
    broker = MemoryBroker(BrokerConfig(create="config", destinations=(table,)))
    client = reader(broker)
    subscribe(client, topic=topic)
    assert refusal(client) == code
    assert list(broker.destinations) == ([] if code else [TOPIC])


@pytest.mark.parametrize(("count", "code"), [(2, None), (3, "too-many-subscriptions")])
def test_they_are_counted(broker_with: MakeBroker, count: int, code: str | None) -> None:
    broker = broker_with(max_durable_subscriptions=2)
    for number in range(count):
        client = broker.client(client_id=str(number))
        subscribe(client)
    assert refusal(client) == code


def test_one_that_is_removed_makes_room_for_another(broker_with: MakeBroker) -> None:
    broker = broker_with(max_durable_subscriptions=1)
    first = broker.client(client_id="1")
    subscribe(first)
    unsubscribe(first, durably=True)
    second = broker.client(client_id="2")
    subscribe(second)
    assert refusal(second) is None


# Unused subscriptions.


@spellings
def test_one_that_nobody_uses_for_long_is_removed(broker_with: MakeBroker, spelling: str) -> None:
    broker = broker_with(durable_expiry_s=DAY_S)
    client = reader(broker, spelling)
    subscribe(client, spelling)
    broker.clock.advance(10 * DAY_S)
    broker.client().publish(TOPIC, b"in use")
    assert client.bodies() == [b"in use"]
    client.close()
    broker.clock.advance(DAY_S - 1)
    broker.client().publish(TOPIC, b"just in time")
    assert list(broker.destinations) == [TOPIC]
    broker.clock.advance(61)
    assert broker.destinations == {}
    client = reader(broker, spelling)
    subscribe(client, spelling)
    assert client.bodies() == []


def test_its_time_begins_when_the_client_leaves_however_short_it_is(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(durable_expiry_s=30.0)
    client = reader(broker)
    subscribe(client)
    broker.clock.advance(50.0)
    client.drop()
    broker.clock.advance(15.0)
    broker.client().publish(TOPIC, b"x")
    client = reader(broker)
    subscribe(client)
    assert client.bodies() == [b"x"]
    unsubscribe(client, durably=False)
    broker.clock.advance(120.0)
    assert broker.destinations == {}


def test_none_is_removed_where_that_is_not_wanted(broker_with: MakeBroker) -> None:
    broker = broker_with(durable_expiry_s=0.0)
    client = reader(broker)
    subscribe(client)
    client.close()
    broker.client().publish(TOPIC, b"x")
    broker.clock.advance(1_000 * DAY_S)
    client = reader(broker)
    subscribe(client)
    assert client.bodies() == [b"x"]


# After a restart.


@spellings
@pytest.mark.parametrize("topic", [TOPIC, "/topic/*"])
def test_it_survives_the_broker(spelling: str, topic: str) -> None:
    store = MemoryStore()
    broker = MemoryBroker(store=store)
    client = reader(broker, spelling)
    subscribe(client, spelling, topic, selector="colour = 'blue'")
    broker.client().publish(TOPIC, b"1", colour="blue")
    broker.client().publish(TOPIC, b"red", colour="red")
    assert client.bodies() == [b"1"]
    client.close()
    broker.client().publish(TOPIC, b"2", colour="blue")
    broker.broker.close()
    broker = MemoryBroker(store=store, clock=broker.clock)
    broker.client().publish(TOPIC, b"3", colour="blue")
    broker.client().publish(TOPIC, b"red", colour="red")
    client = reader(broker, spelling)
    subscribe(client, spelling, topic, selector="colour = 'blue'")
    assert client.bodies() == [b"2", b"3"]


def test_the_settings_of_the_topic_are_those_of_its_durable_subscriptions() -> None:
    settings = DestinationConfig(name="/topic/small", max_queue_messages=2)
    broker = MemoryBroker(BrokerConfig(destinations=(settings,)))
    for topic in ("/topic/small", "/topic/large"):
        headers = {"durable": "true", "x-queue-name": topic}
        reader = broker.client()
        reader.subscribe(topic, **headers)
        reader.close()
        publish_all(broker.client(), topic, numbered(1, 3))
        reader = broker.client()
        reader.subscribe(topic, **headers)
        # A full subscription drops the oldest messages.
        assert reader.bodies() == numbered(2 if topic == "/topic/small" else 1, 3)


def test_one_that_was_removed_stays_removed() -> None:
    store = MemoryStore()
    broker = MemoryBroker(store=store)
    client = reader(broker)
    subscribe(client)
    client.publish(TOPIC, b"x")
    unsubscribe(client, durably=True)
    broker.broker.close()
    broker = MemoryBroker(store=store, clock=broker.clock)
    assert broker.destinations == {}
    assert store.lanes() == []
    assert store.records() == {}


@pytest.mark.parametrize("order", [("/topic/a.*", "/topic/a.x"), ("/topic/a.x", "/topic/a.*")])
def test_each_durable_subscription_has_its_own_lifetime_of_messages(order: tuple[str, str]) -> None:
    """A message is one object for all of them."""
    broker = MemoryBroker(
        BrokerConfig(
            destinations=(
                DestinationConfig(name="/topic/a.*", message_ttl_s=1.0),
                DestinationConfig(name="/topic/a.x", message_ttl_s=0.0),
            )
        )
    )
    for topic in order:
        client = broker.client(**{"client-id": topic})
        client.subscribe(topic, id="s", **{"activemq.subscriptionName": "mine"})
        client.close()
    live = broker.client()
    live.subscribe("/topic/a.x")
    live.stop_reading()
    broker.client().publish("/topic/a.x", b"x")
    broker.clock.advance(1.0)
    live.start_reading()
    assert live.bodies() == [b"x"]
    found = {}
    for topic in order:
        client = broker.client(**{"client-id": topic})
        client.subscribe(topic, id="s", **{"activemq.subscriptionName": "mine"})
        found[topic] = client.bodies()
    assert found == {"/topic/a.*": [], "/topic/a.x": [b"x"]}


@pytest.mark.parametrize("name", ["n" * 300, "n" * 300 + "*"])
def test_a_durable_subscription_with_a_long_name_has_dead_letters(name: str) -> None:
    """Each character of the client-id takes six in the name of its dead letters."""
    broker = MemoryBroker()
    client = broker.client(**{"client-id": "\u00e9" * 300})
    client.subscribe(TOPIC, id="s", ack="client-individual", **{"activemq.subscriptionName": name})
    producer = broker.client()
    producer.publish(TOPIC, b"x")
    client.send("NACK", id=take_one(client).headers["ack"], requeue="false")
    assert client.take("MESSAGE") == []
    [letters] = [each for each in broker.broker.hosts[""].destinations if each.startswith("/dlq/")]
    assert len(letters) > broker.broker.config.max_destination_bytes
    operator = broker.client()
    operator.subscribe(letters)
    assert operator.bodies() == [b"x"]
    # Names that clients make up are as long as before.
    producer.subscribe("/dlq/" + "x" * 1_024)
    assert refusal(producer) == "bad-destination"
