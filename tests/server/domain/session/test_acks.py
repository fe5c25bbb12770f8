"""Acknowledgements: every mode on every version, redelivery, prefetch and dead letters."""

from __future__ import annotations

import pytest

from stompkit.frames import VERSIONS, Frame
from stompkit.server import BrokerConfig
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.many_queues import fill, left, numbered, received

QUEUE = "/queue/a"
DEAD = "/dlq/a"
MODES = ("client", "client-individual")
WITH_NACK = ("1.1", "1.2")


def consume(
    broker: MemoryBroker, version: str, ack: str, **headers: str
) -> tuple[MemoryClient, dict[bytes, Frame]]:
    """Subscribe a new client to QUEUE; return it with the messages received, by their bodies."""
    client = broker.client(version)
    client.subscribe(QUEUE, id="s", ack=ack, **headers)
    return client, received(client)


def refusal(client: MemoryClient) -> str | None:
    return None if client.error is None else client.error.headers["stompkit-code"]


# ACK.


@pytest.mark.parametrize("version", VERSIONS)
def test_auto_messages_are_settled_when_they_are_sent(version: str) -> None:
    broker = MemoryBroker()
    fill(broker, 3)
    client, messages = consume(broker, version, "auto")
    assert list(messages) == numbered(1, 3)
    assert all("ack" not in message.headers for message in messages.values())
    client.drop()
    assert left(broker) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_auto_is_the_mode_of_those_who_name_none(version: str) -> None:
    broker = MemoryBroker()
    fill(broker, 1)
    client = broker.client(version)
    client.send("SUBSCRIBE", id="1", destination=QUEUE)
    client.drop()
    assert left(broker) == []


@pytest.mark.parametrize("mode", MODES)
def test_only_1_2_has_an_ack_header(mode: str) -> None:
    for version in VERSIONS:
        broker = MemoryBroker()
        fill(broker, 1)
        _, messages = consume(broker, version, mode)
        assert ("ack" in messages[b"1"].headers) == (version == "1.2")


@pytest.mark.parametrize("version", VERSIONS)
def test_client_acknowledges_all_up_to_the_one_named(version: str) -> None:
    broker = MemoryBroker()
    fill(broker, 5)
    client, messages = consume(broker, version, "client")
    client.ack(messages[b"3"], receipt="r")
    assert [frame.command for frame in client.take()] == ["RECEIPT"]
    client.drop()
    assert left(broker) == [b"4", b"5"]


@pytest.mark.parametrize("version", VERSIONS)
def test_client_individual_acknowledges_the_one_named_only(version: str) -> None:
    broker = MemoryBroker()
    fill(broker, 5)
    client, messages = consume(broker, version, "client-individual")
    client.ack(messages[b"3"])
    client.ack(messages[b"1"])
    client.drop()
    assert left(broker) == [b"2", b"4", b"5"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cumulative_ack_keeps_to_its_own_subscription(version: str) -> None:
    broker = MemoryBroker()
    fill(broker, 2, "/queue/a")
    fill(broker, 2, "/queue/b")
    fill(broker, 2, "/queue/c")
    client = broker.client(version)
    client.subscribe("/queue/a", id="1", ack="client")
    client.subscribe("/queue/b", id="2", ack="client-individual")
    client.subscribe("/queue/c", id="3", ack="client")
    messages = client.take("MESSAGE")
    [last] = [m for m in messages if m.headers["subscription"] == "3" and m.body == b"2"]
    client.ack(last)
    client.drop()
    assert left(broker, "/queue/a") == numbered(1, 2)
    assert left(broker, "/queue/b") == numbered(1, 2)
    assert left(broker, "/queue/c") == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cumulative_ack_tells_two_subscriptions_of_one_queue_apart(version: str) -> None:
    broker = MemoryBroker()
    client = broker.client(version)
    client.subscribe(QUEUE, id="1", ack="client")
    client.subscribe(QUEUE, id="2", ack="client")
    fill(broker, 6)
    messages = received(client)
    assert [m.headers["subscription"] for m in messages.values()] == ["1", "2"] * 3
    client.ack(messages[b"5"])  # of the first subscription: 1, 3 and 5
    client.drop()
    assert left(broker) == [b"2", b"4", b"6"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cumulative_ack_goes_by_the_order_of_delivery(version: str) -> None:
    broker = MemoryBroker()
    fill(broker, 3)
    other, messages = consume(broker, "1.2", "client-individual", prefetch_count="1")
    client, _ = consume(broker, version, "client")
    other.nack(messages[b"1"])
    other.close()
    client.ack(received(client)[b"1"])  # delivered after 2 and 3
    client.drop()
    assert left(broker) == []


# After UNSUBSCRIBE.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_ack_may_come_after_unsubscribe(version: str, mode: str) -> None:
    broker = MemoryBroker()
    fill(broker, 3)
    client, messages = consume(broker, version, mode)
    client.send("UNSUBSCRIBE", id="s")
    client.ack(messages[b"2"], receipt="r")
    assert refusal(client) is None
    client.drop()
    assert left(broker) == ([b"3"] if mode == "client" else [b"1", b"3"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", WITH_NACK)
def test_a_nack_may_come_after_unsubscribe(version: str, mode: str) -> None:
    broker = MemoryBroker()
    fill(broker, 3)
    client, messages = consume(broker, version, mode)
    client.send("UNSUBSCRIBE", id="s")
    other = broker.client()
    other.subscribe(QUEUE)
    client.nack(messages[b"2"])
    assert other.bodies() == (numbered(1, 2) if mode == "client" else [b"2"])


@pytest.mark.parametrize("version", VERSIONS)
def test_unsubscribe_leaves_unsettled_messages_with_the_connection(version: str) -> None:
    broker = MemoryBroker()
    fill(broker, 3)
    client, _ = consume(broker, version, "client", prefetch_count="2")
    client.send("UNSUBSCRIBE", id="s")
    other = broker.client()
    other.subscribe(QUEUE)
    assert other.bodies() == [b"3"]
    client.drop()
    assert other.bodies() == [b"1", b"2"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_subscription_of_the_same_id_starts_afresh(version: str) -> None:
    broker = MemoryBroker()
    fill(broker, 4)
    client, before = consume(broker, version, "client", prefetch_count="2")
    client.send("UNSUBSCRIBE", id="s")
    client.subscribe(QUEUE, id="s", ack="client", prefetch_count="2")
    after = received(client)
    assert list(after) == [b"3", b"4"]
    client.ack(after[b"4"])  # cumulative, but not for messages of the old subscription
    client.ack(before[b"1"])
    client.drop()
    assert left(broker) == [b"2"]


# Errors.


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_acknowledgement_is_refused(version: str, command: str) -> None:
    client = MemoryBroker().client(version)
    names = {"id": "1", "message-id": "1", "subscription": "s"}
    client.send(command, names, receipt="r")
    assert client.error is not None
    assert client.error.headers["receipt-id"] == "r"
    no_nack = version == "1.0" and command == "NACK"
    assert refusal(client) == ("unknown-command" if no_nack else "unknown-acknowledgement")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_repeated_ack_is_refused(version: str, mode: str) -> None:
    broker = MemoryBroker()
    fill(broker, 2)
    client, messages = consume(broker, version, mode)
    client.ack(messages[b"1"])
    client.ack(messages[b"1"])
    assert refusal(client) == "unknown-acknowledgement"


@pytest.mark.parametrize("version", VERSIONS)
def test_an_ack_of_what_a_cumulative_one_has_settled_is_refused(version: str) -> None:
    broker = MemoryBroker()
    fill(broker, 2)
    client, messages = consume(broker, version, "client")
    client.ack(messages[b"2"])
    client.ack(messages[b"1"])
    assert refusal(client) == "unknown-acknowledgement"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_ack_of_another_connections_message_is_refused(version: str, mode: str) -> None:
    broker = MemoryBroker()
    fill(broker, 1)
    holder, messages = consume(broker, version, mode)
    thief = broker.client(version)
    thief.subscribe(QUEUE, id="s", ack=mode)
    thief.ack(messages[b"1"])
    assert refusal(thief) == "unknown-acknowledgement"
    holder.ack(messages[b"1"], receipt="r")
    assert refusal(holder) is None
    holder.close()
    assert left(broker) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_the_ack_of_an_auto_message_is_refused(version: str) -> None:
    broker = MemoryBroker()
    fill(broker, 1)
    client, messages = consume(broker, version, "auto")
    message_id = messages[b"1"].headers["message-id"]
    client.send("ACK", {"id": message_id, "message-id": message_id, "subscription": "s"})
    assert refusal(client) == "unknown-acknowledgement"


def test_1_1_acknowledgements_name_the_right_subscription() -> None:
    broker = MemoryBroker()
    fill(broker, 1)
    client, messages = consume(broker, "1.1", "client")
    client.subscribe("/queue/other", id="other", ack="client")
    names = {"message-id": messages[b"1"].headers["message-id"], "subscription": "other"}
    client.send("ACK", names)
    assert refusal(client) == "unknown-acknowledgement"


def test_1_2_acknowledgements_do_not_go_by_the_message_id() -> None:
    broker = MemoryBroker()
    fill(broker, 1)
    client, messages = consume(broker, "1.2", "client")
    client.send("ACK", id=messages[b"1"].headers["message-id"])
    assert refusal(client) == "unknown-acknowledgement"


def test_a_refused_acknowledgement_settles_nothing() -> None:
    broker = MemoryBroker()
    fill(broker, 3)
    client, messages = consume(broker, "1.2", "client")
    client.ack(messages[b"1"])
    client.send("ACK", id="999")
    client.ack(messages[b"3"])  # after the ERROR, so it has no effect
    client.close()
    assert left(broker) == [b"2", b"3"]


# NACK.


@pytest.mark.parametrize("version", WITH_NACK)
def test_client_individual_refuses_the_one_named_only(version: str) -> None:
    broker = MemoryBroker()
    fill(broker, 3)
    client, messages = consume(broker, version, "client-individual")
    client.nack(messages[b"2"])
    again = received(client)
    assert list(again) == [b"2"]
    assert again[b"2"].headers["redelivered"] == "true"
    assert again[b"2"].headers["delivery-count"] == "2"
    assert again[b"2"].headers["message-id"] == messages[b"2"].headers["message-id"]


@pytest.mark.parametrize("version", WITH_NACK)
def test_client_refuses_all_up_to_the_one_named(version: str) -> None:
    broker = MemoryBroker()
    fill(broker, 4)
    client, messages = consume(broker, version, "client")
    client.nack(messages[b"3"])
    assert list(received(client)) == numbered(1, 3)


@pytest.mark.parametrize("version", WITH_NACK)
def test_refused_messages_come_back_in_their_original_order(version: str) -> None:
    broker = MemoryBroker()
    fill(broker, 6)
    client, messages = consume(broker, version, "client-individual", prefetch_count="4")
    client.stop_reading()
    for body in (b"3", b"1", b"4"):
        client.nack(messages[body])
    client.start_reading()
    assert list(received(client)) == [b"1", b"3", b"4"]


def test_refused_messages_come_before_those_never_delivered() -> None:
    broker = MemoryBroker()
    fill(broker, 6)
    client, messages = consume(broker, "1.2", "client-individual", prefetch_count="2")
    client.nack(messages[b"2"])
    assert list(received(client)) == [b"2"]
    client.ack(messages[b"1"])
    assert list(received(client)) == [b"3"]


def test_a_refused_message_goes_to_the_next_subscriber_in_turn() -> None:
    broker = MemoryBroker()
    first, second = broker.client(), broker.client()
    first.subscribe(QUEUE, ack="client")
    second.subscribe(QUEUE, ack="client")
    fill(broker, 1)
    first.nack(received(first)[b"1"])
    again = received(second)[b"1"]
    second.nack(again)
    assert received(first)[b"1"].headers["delivery-count"] == "3"


def test_several_holders_messages_come_back_in_order() -> None:
    broker = MemoryBroker()
    clients = [broker.client() for _ in range(3)]
    for client in clients:
        client.subscribe(QUEUE, id="s", ack="client-individual")
    fill(broker, 9)
    held = [received(client) for client in clients]
    late = broker.client()
    for client in clients:
        client.send("UNSUBSCRIBE", id="s")
    for client, messages in zip(clients, held, strict=True):
        for message in reversed(messages.values()):
            client.nack(message)
    late.subscribe(QUEUE)
    assert late.bodies() == numbered(1, 9)


def test_1_0_has_no_nack() -> None:
    broker = MemoryBroker()
    fill(broker, 1)
    client, messages = consume(broker, "1.0", "client")
    client.nack(messages[b"1"])
    assert refusal(client) == "unknown-command"


# Prefetch.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", VERSIONS)
def test_prefetch_bounds_what_is_unacknowledged_and_acks_refill_it(version: str, mode: str) -> None:
    broker = MemoryBroker(BrokerConfig(prefetch=3))
    fill(broker, 7)
    client, messages = consume(broker, version, mode)
    assert list(messages) == numbered(1, 3)
    client.ack(messages[b"2"])
    more = received(client)
    assert list(more) == (numbered(4, 5) if mode == "client" else [b"4"])
    client.ack(messages[b"3"])
    assert list(received(client)) == ([b"6"] if mode == "client" else [b"5"])
    assert refusal(client) is None


@pytest.mark.parametrize(
    ("headers", "most"),
    [
        ({}, 3),
        ({"prefetch-count": "1"}, 1),
        ({"prefetch-count": "5"}, 5),
        ({"prefetch-count": "6"}, 5),
        ({"prefetch-count": "999999999"}, 5),
        ({"prefetch-count": "0"}, 5),
        ({"activemq.prefetchSize": "2"}, 2),
        ({"activemq.prefetchSize": "2", "prefetch-count": "1"}, 1),
    ],
    ids=str,
)
def test_a_subscription_says_its_prefetch(headers: dict[str, str], most: int) -> None:
    broker = MemoryBroker(BrokerConfig(prefetch=3, max_prefetch=5))
    fill(broker, 9)
    client = broker.client()
    client.send("SUBSCRIBE", {"destination": QUEUE, "id": "1", "ack": "client", **headers})
    assert len(client.take("MESSAGE")) == most


@pytest.mark.parametrize("value", ["", "-1", "1.5", "many", " 1", "\u0661", "1" * 10])
def test_a_prefetch_that_is_no_number_is_refused(value: str) -> None:
    client = MemoryBroker().client()
    client.subscribe(QUEUE, ack="client", prefetch_count=value, receipt="r")
    assert refusal(client) == "bad-header"


def test_auto_does_not_heed_prefetch() -> None:
    broker = MemoryBroker()
    fill(broker, 9)
    _, messages = consume(broker, "1.2", "auto", prefetch_count="1")
    assert len(messages) == 9


def test_prefetch_counts_for_each_subscription_for_itself() -> None:
    broker = MemoryBroker()
    fill(broker, 9)
    client = broker.client()
    client.subscribe(QUEUE, id="1", ack="client", prefetch_count="1")
    client.subscribe(QUEUE, id="2", ack="client", prefetch_count="3")
    got = [m.headers["subscription"] for m in client.take("MESSAGE")]
    assert (got.count("1"), got.count("2")) == (1, 3)


def test_acknowledgements_after_unsubscribe_do_not_refill_what_has_ended() -> None:
    broker = MemoryBroker()
    fill(broker, 5)
    client, messages = consume(broker, "1.2", "client", prefetch_count="2")
    client.send("UNSUBSCRIBE", id="s")
    client.ack(messages[b"2"])
    assert client.take() == []


def test_a_nack_refills_too() -> None:
    broker = MemoryBroker(BrokerConfig(max_deliveries=1))
    fill(broker, 3)
    client, messages = consume(broker, "1.2", "client", prefetch_count="1")
    for body in numbered(1, 3):
        client.nack(messages[body])
        messages = received(client)
    assert left_in_dead_letters(broker, client) == numbered(1, 3)


# Dead letters.


def left_in_dead_letters(broker: MemoryBroker, client: MemoryClient) -> list[bytes]:
    client.close()
    return left(broker, DEAD)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", WITH_NACK)
def test_a_message_refused_too_often_goes_to_the_dead_letters(version: str, mode: str) -> None:
    broker = MemoryBroker(BrokerConfig(max_deliveries=3))
    broker.client().publish(QUEUE, b"poison", x="y")
    client, messages = consume(broker, version, mode)
    for delivery in ("2", "3"):
        client.nack(messages[b"poison"])
        messages = received(client)
        assert messages[b"poison"].headers["delivery-count"] == delivery
    client.nack(messages[b"poison"])
    assert received(client) == {}
    client.subscribe(DEAD, id="dead")
    letter = received(client)[b"poison"]
    assert letter.headers["destination"] == DEAD
    assert letter.headers["original-destination"] == QUEUE
    assert letter.headers["dead-letter-reason"] == "max-deliveries"
    assert letter.headers["dead-letter-deliveries"] == "3"
    assert letter.headers["x"] == "y"
    assert letter.headers["message-id"] == messages[b"poison"].headers["message-id"]
    assert "redelivered" not in letter.headers
    assert "delivery-count" not in letter.headers
    assert list(broker.destinations) == [QUEUE, DEAD]


def test_a_limit_of_one_delivery_allows_no_second() -> None:
    broker = MemoryBroker(BrokerConfig(max_deliveries=1))
    fill(broker, 1)
    client, messages = consume(broker, "1.2", "client")
    client.nack(messages[b"1"])
    assert received(client) == {}
    assert left_in_dead_letters(broker, client) == [b"1"]


def test_of_a_cumulative_nack_only_those_delivered_too_often_are_dead() -> None:
    broker = MemoryBroker(BrokerConfig(max_deliveries=2))
    fill(broker, 2)
    client, messages = consume(broker, "1.2", "client")
    client.nack(messages[b"1"])
    again = received(client)
    client.nack(again[b"1"])  # delivered last, so it refuses 2 as well, for the first time
    assert list(received(client)) == [b"2"]
    assert left_in_dead_letters(broker, client) == [b"1"]


@pytest.mark.parametrize("version", WITH_NACK)
def test_requeue_false_goes_to_the_dead_letters_at_once(version: str) -> None:
    broker = MemoryBroker()
    fill(broker, 1)
    client, messages = consume(broker, version, "client")
    client.nack(messages[b"1"], requeue="false")
    client.subscribe(DEAD, id="dead")
    letter = received(client)[b"1"]
    assert letter.headers["dead-letter-reason"] == "rejected"
    assert letter.headers["dead-letter-deliveries"] == "1"


@pytest.mark.parametrize(("value", "again"), [("true", [b"1"]), ("True", [b"1"]), ("False", [])])
def test_requeue_false_forbids_another_try(value: str, again: list[bytes]) -> None:
    broker = MemoryBroker()
    fill(broker, 1)
    client, messages = consume(broker, "1.2", "client")
    client.nack(messages[b"1"], requeue=value)
    assert list(received(client)) == again


@pytest.mark.parametrize("value", ["", "no", "0", "false "])
def test_a_requeue_that_is_neither_true_nor_false_is_refused(value: str) -> None:
    broker = MemoryBroker()
    fill(broker, 1)
    client, messages = consume(broker, "1.2", "client")
    client.nack(messages[b"1"], requeue=value)
    assert refusal(client) == "bad-header"
    _, messages = consume(broker, "1.2", "client")
    assert list(messages) == [b"1"]


def test_requeue_false_does_not_matter_to_ack() -> None:
    broker = MemoryBroker()
    fill(broker, 1)
    client, messages = consume(broker, "1.2", "client")
    client.ack(messages[b"1"], requeue="false")
    client.close()
    assert broker.destinations == {}


@pytest.mark.parametrize("way", ["requeue", "max-deliveries"])
def test_dead_letters_that_are_refused_are_dropped(way: str) -> None:
    broker = MemoryBroker(BrokerConfig(max_deliveries=2))
    producer = broker.client()
    producer.publish(DEAD, b"x")
    client = broker.client()
    client.subscribe(DEAD, ack="client")
    if way == "requeue":
        client.nack(received(client)[b"x"], requeue="false")
    else:
        client.nack(received(client)[b"x"])
        client.nack(received(client)[b"x"])
    assert received(client) == {}
    client.close()
    assert broker.destinations == {}


def test_losing_a_connection_often_kills_no_message() -> None:
    broker = MemoryBroker(BrokerConfig(max_deliveries=2))
    fill(broker, 1)
    for _ in range(5):
        client, messages = consume(broker, "1.2", "client")
        assert list(messages) == [b"1"]
        client.drop()
    assert list(broker.destinations) == [QUEUE]


def test_what_the_dead_letters_have_no_room_for_stays_in_its_queue() -> None:
    broker = MemoryBroker(BrokerConfig(max_queue_messages=2))
    client = broker.client()
    client.publish(DEAD, b"old 1")
    client.publish(DEAD, b"old 2")
    fill(broker, 2)
    client.subscribe(QUEUE, ack="client-individual")
    client.nack(received(client)[b"1"], requeue="false")
    assert refusal(client) is None
    assert list(received(client)) == [b"1"]
    client.close()
    assert sorted(left(broker)) == numbered(1, 2)
    assert left(broker, DEAD) == [b"old 1", b"old 2"]


def test_what_finds_no_dead_letters_because_of_too_many_destinations_stays() -> None:
    broker = MemoryBroker(BrokerConfig(max_destinations=1))
    fill(broker, 1)
    client, messages = consume(broker, "1.2", "client")
    client.nack(messages[b"1"], requeue="false")
    assert refusal(client) is None
    client.close()
    assert left(broker) == [b"1"]


def test_dead_letters_forge_nothing() -> None:
    broker = MemoryBroker()
    broker.client().publish(QUEUE, b"x", original_destination="/queue/forged")
    client, messages = consume(broker, "1.2", "client")
    client.nack(messages[b"x"], requeue="false")
    client.subscribe(DEAD, id="dead")
    assert received(client)[b"x"].values("original-destination") == [QUEUE]
