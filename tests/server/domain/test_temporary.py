"""Temporary destinations: private to one client, for replies."""

from __future__ import annotations

import pytest

from stompkit.frames import VERSIONS
from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import MakeBroker, publish_all, refusal, take_one
from tests.server.many_queues import numbered

OWN = "/temp-queue/mine"
SERVICE = "/queue/service"


def ask(client: MemoryClient, body: bytes = b"question", reply_to: str = OWN) -> None:
    """Send a message that requests a reply."""
    client.publish(SERVICE, body, reply_to=reply_to)


def name_given(broker: MemoryBroker, client: MemoryClient, reply_to: str = OWN) -> str:
    """Return the name by which others know a client's temporary destination."""
    service = broker.client()
    service.subscribe(SERVICE)
    ask(client, reply_to=reply_to)
    name = take_one(service).headers["reply-to"]
    service.close()
    return name


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["temp-queue", "temp-topic"])
def test_an_answer_reaches_who_has_asked(version: str, kind: str) -> None:
    broker = MemoryBroker()
    service, client = broker.client(), broker.client(version)
    service.subscribe(SERVICE)
    client.subscribe(f"/{kind}/mine", id="answers")
    ask(client, reply_to=f"/{kind}/mine")
    question = take_one(service)
    service.publish(question.headers["reply-to"], b"answer", correlation_id="7", receipt="r")
    answer = take_one(client)
    assert answer.body == b"answer"
    assert answer.headers["subscription"] == "answers"
    assert answer.headers["correlation-id"] == "7"
    assert service.take("RECEIPT")


def test_the_name_given_to_others_is_long_and_different_each_time() -> None:
    broker = MemoryBroker()
    names = [name_given(broker, broker.client()) for _ in range(10)]
    assert len(set(names)) == 10
    for name in names:
        secret = name.removeprefix("/temp-queue/").removesuffix("/mine")
        assert len(secret) == 32
        assert int(secret, 16) >= 0


def test_a_client_may_ask_first_and_subscribe_then() -> None:
    broker = MemoryBroker()
    client = broker.client()
    name = name_given(broker, client)
    broker.client().publish(name, b"early")
    client.subscribe(OWN)
    assert client.bodies() == [b"early"]


def test_the_same_name_of_two_clients_is_two_destinations() -> None:
    broker = MemoryBroker()
    one, other = broker.client(), broker.client()
    one.subscribe(OWN)
    other.subscribe(OWN)
    one.publish(OWN, b"for one")
    assert one.bodies() == [b"for one"]
    assert other.bodies() == []
    broker.client().publish(name_given(broker, other), b"for the other")
    assert one.bodies() == []
    assert other.bodies() == [b"for the other"]


def test_the_same_name_of_one_client_is_one_destination() -> None:
    broker = MemoryBroker()
    client = broker.client()
    assert name_given(broker, client) == name_given(broker, client)
    assert name_given(broker, client, "/temp-queue/other") != name_given(broker, client)
    assert name_given(broker, client, "/temp-topic/mine").startswith("/temp-topic/")


def test_the_owner_can_use_the_name_that_others_know() -> None:
    broker = MemoryBroker()
    client = broker.client()
    name = name_given(broker, client)
    client.subscribe(name)
    client.publish(OWN, b"x")
    assert client.bodies() == [b"x"]


@pytest.mark.parametrize("kind", ["temp-queue", "temp-topic"])
@pytest.mark.parametrize("browser", ["true", "false"])
def test_nobody_else_can_read_it(kind: str, browser: str) -> None:
    broker = MemoryBroker()
    owner, thief = broker.client(), broker.client()
    name = name_given(broker, owner, f"/{kind}/mine")
    owner.publish(f"/{kind}/mine", b"secret")
    thief.subscribe(name, browser=browser)
    assert refusal(thief) == "not-owner"
    assert thief.take("MESSAGE") == []
    assert refusal(owner) is None


def test_a_reply_to_that_names_somebody_elses_is_passed_on_as_it_is() -> None:
    broker = MemoryBroker()
    owner, relay, service = broker.client(), broker.client(), broker.client()
    owner.subscribe(OWN)
    name = name_given(broker, owner)
    service.subscribe(SERVICE)
    ask(relay, reply_to=name)
    assert take_one(service).headers["reply-to"] == name
    service.publish(name, b"answer")
    assert owner.bodies() == [b"answer"]
    assert relay.bodies() == []


@pytest.mark.parametrize(
    "reply_to", ["/queue/answers", "/topic/answers", "anything", "/temp-queue/"]
)
def test_any_other_reply_to_is_passed_on_as_it_is(reply_to: str) -> None:
    broker = MemoryBroker()
    client = broker.client()
    assert name_given(broker, client, reply_to) == reply_to
    assert client.error is None


def test_a_transaction_may_ask_and_answer(broker_with: MakeBroker) -> None:
    broker = broker_with()
    service, client = broker.client(), broker.client()
    service.subscribe(SERVICE, ack="client")
    client.subscribe(OWN)
    client.send("BEGIN", transaction="t")
    client.publish(SERVICE, b"question", reply_to=OWN, transaction="t")
    client.send("COMMIT", transaction="t")
    question = take_one(service)
    service.send("BEGIN", transaction="t")
    service.publish(question.headers["reply-to"], b"answer", transaction="t")
    service.ack(question, transaction="t")
    assert client.bodies() == []
    service.send("COMMIT", transaction="t")
    assert client.bodies() == [b"answer"]


# A temporary destination behaves like other queues or topics.


def test_what_its_owner_does_not_acknowledge_comes_back() -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe(OWN, id="1", ack="client")
    publish_all(client, OWN, numbered(1, 2))
    first, _ = client.take("MESSAGE")
    client.nack(first)
    again = take_one(client)
    assert again.body == b"1"
    assert again.headers["redelivered"] == "true"
    client.ack(again)
    client.send("UNSUBSCRIBE", id="1")
    client.subscribe(OWN, id="2")
    client.publish(OWN, b"3")
    assert client.bodies() == [b"3"]


def test_it_has_no_dead_letters() -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe(OWN, ack="client")
    client.publish(OWN, b"x")
    client.nack(take_one(client), requeue="false")
    assert client.take() == []
    assert [name for name in broker.destinations if not name.startswith("/temp-queue/")] == []


def test_settings_go_by_its_pattern() -> None:
    table = DestinationConfig(name="/temp-queue/*", max_queue_messages=1)
    client = MemoryBroker(BrokerConfig(destinations=(table,))).client()
    client.publish(OWN, b"1")
    assert refusal(client) is None
    client.publish(OWN, b"2")
    assert refusal(client) == "queue-full"


def test_it_is_made_whoever_may_make_destinations() -> None:
    client = MemoryBroker(BrokerConfig(create="config")).client()
    client.subscribe(OWN)
    client.publish(OWN, b"x")
    assert client.bodies() == [b"x"]


def test_it_is_never_in_the_store(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = broker.client()
    client.publish(OWN, b"x")
    store = broker.broker.store
    if store is not None:
        assert store.lanes() == []
    client.subscribe(OWN)
    assert client.bodies() == [b"x"]


@pytest.mark.parametrize(("count", "code"), [(3, None), (4, "too-many-destinations")])
def test_those_of_a_connection_are_counted(count: int, code: str | None) -> None:
    client = MemoryBroker(BrokerConfig(max_subscriptions=3)).client()
    for number in range(count):
        client.publish(f"/temp-queue/{number}", b"x")
    assert refusal(client) == code


@pytest.mark.parametrize("name", ["/temp-queue/", "/temp-topic/"])
def test_it_needs_a_name(name: str) -> None:
    client = MemoryBroker().client()
    client.subscribe(name)
    assert refusal(client) == "unknown-destination"


# Its end.


@pytest.mark.parametrize("way", ["disconnect", "close", "drop", "error"])
def test_it_ends_with_its_owner(way: str) -> None:
    broker = MemoryBroker()
    owner, other = broker.client(), broker.client()
    owner.subscribe(OWN, id="1", ack="client")
    owner.subscribe("/temp-topic/mine", id="2")
    publish_all(owner, OWN, numbered(1, 3))
    assert len(broker.destinations) == 2
    if way == "error":
        owner.write(b"nonsense\n\n\0")
    elif way == "disconnect":
        owner.send("DISCONNECT")
    else:
        getattr(owner, way)()
    assert broker.destinations == {}
    other.subscribe(OWN)
    assert other.bodies() == []


@pytest.mark.parametrize("kind", ["temp-queue", "temp-topic"])
def test_an_answer_that_comes_too_late_is_dropped_and_its_sender_does_not_suffer(kind: str) -> None:
    broker = MemoryBroker()
    owner, service = broker.client(), broker.client()
    name = name_given(broker, owner, f"/{kind}/mine")
    owner.close()
    service.publish(name, b"late", receipt="1")
    service.send("BEGIN", transaction="t")
    service.publish(name, b"late", transaction="t")
    service.send("COMMIT", transaction="t", receipt="2")
    assert [each.headers["receipt-id"] for each in service.take("RECEIPT")] == ["1", "2"]
    assert broker.destinations == {}


def test_a_transaction_with_an_answer_is_committed_though_who_has_asked_is_gone_by_then(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with()
    owner, service = broker.client(), broker.client()
    service.subscribe(SERVICE, ack="client")
    ask(owner)
    question = take_one(service)
    service.send("BEGIN", transaction="t")
    service.ack(question, transaction="t")
    service.publish(question.headers["reply-to"], b"answer", transaction="t")
    service.publish("/queue/log", b"answered", transaction="t")
    owner.close()
    service.send("COMMIT", transaction="t", receipt="r")
    assert service.take("RECEIPT")
    assert set(broker.destinations) == {SERVICE, "/queue/log"}
    service.subscribe("/queue/log", id="log")
    assert service.bodies() == [b"answered"]


def test_a_temporary_destination_that_is_gone_can_not_be_subscribed_to() -> None:
    broker = MemoryBroker()
    owner, other = broker.client(), broker.client()
    name = name_given(broker, owner)
    owner.close()
    other.subscribe(name)
    assert refusal(other) == "unknown-destination"


def test_a_sender_that_waits_for_room_goes_on_when_the_owner_leaves() -> None:
    broker = MemoryBroker(BrokerConfig(when_full="block", max_queue_messages=1))
    owner, service = broker.client(), broker.client()
    name = name_given(broker, owner)
    for number in range(3):
        service.publish(name, b"x", receipt=str(number))
    assert len(service.take("RECEIPT")) == 1
    owner.close()
    service.write(b"\n")
    assert len(service.take("RECEIPT")) == 2
    assert refusal(service) is None


@pytest.mark.parametrize("kind", ["temp-queue", "temp-topic"])
def test_nothing_waits_for_its_time_in_one_that_is_gone(kind: str) -> None:
    broker = MemoryBroker()
    owner = broker.client()
    owner.subscribe(f"/{kind}/mine")
    for delay in ("5000", "3000", "9000"):
        owner.publish(f"/{kind}/mine", b"x", delay=delay)
    owner.close()
    assert broker.clock.getDelayedCalls() == []


# The way of RabbitMQ.


def test_in_rabbitmqs_dialect_who_asks_is_subscribed_by_that() -> None:
    broker = MemoryBroker(BrokerConfig(dialect="rabbitmq"))
    service, client = broker.client(), broker.client()
    service.subscribe(SERVICE)
    ask(client)
    ask(client, b"another")
    for question in service.take("MESSAGE"):
        service.publish(question.headers["reply-to"], b"answer to " + question.body)
    answers = client.take("MESSAGE")
    assert [each.body for each in answers] == [b"answer to question", b"answer to another"]
    assert {each.headers["subscription"] for each in answers} == {OWN}
    assert all("ack" not in each.headers for each in answers)


def test_in_rabbitmqs_dialect_the_name_given_to_others_works_as_theirs() -> None:
    broker = MemoryBroker(BrokerConfig(dialect="rabbitmq"))
    service, client = broker.client(), broker.client()
    name = name_given(broker, client)
    service.publish(name.replace("/temp-queue/", "/reply-queue/"), b"answer")
    assert client.bodies() == [b"answer"]


def test_in_our_own_way_nobody_is_subscribed_without_saying_so() -> None:
    broker = MemoryBroker()
    client = broker.client()
    broker.client().publish(name_given(broker, client), b"answer")
    assert client.bodies() == []
