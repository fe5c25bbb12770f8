"""Browsers: they show the messages of a queue without removing any."""

from __future__ import annotations

import pytest

from stompkit.frames import VERSIONS
from stompkit.server import BrokerConfig
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker
from tests.server.brokers import MakeBroker, publish_all, refusal, stored, take_one
from tests.server.many_queues import numbered

QUEUE = "/queue/a"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_a_browser_sees_all_and_takes_nothing(
    broker_with: MakeBroker, version: str, ack: str
) -> None:
    broker = broker_with()
    publish_all(broker.client(), QUEUE, numbered(1, 150), colour="blue")
    browser, consumer = broker.client(version), broker.client()
    browser.subscribe(QUEUE, id="b", ack=ack, browser="true")
    *messages, end = browser.take("MESSAGE")
    assert [each.body for each in messages] == numbered(1, 150)
    for message in messages:
        assert message.headers["subscription"] == "b"
        assert message.headers["colour"] == "blue"
        assert message.headers["destination"] == QUEUE
        assert {"ack", "redelivered", "delivery-count", "browser"}.isdisjoint(message.headers)
    assert end.headers == {
        "subscription": "b",
        "message-id": "end",
        "browser": "end",
        "destination": QUEUE,
    }
    assert end.body == b""
    consumer.subscribe(QUEUE)
    again = consumer.take("MESSAGE")
    assert [each.body for each in again] == numbered(1, 150)
    assert all("redelivered" not in each.headers for each in again)


def test_after_the_end_nothing_comes(broker_with: MakeBroker) -> None:
    broker = broker_with()
    browser = broker.client()
    browser.subscribe(QUEUE, browser="true")
    assert take_one(browser).headers["browser"] == "end"
    publish_all(broker.client(), QUEUE, numbered(1, 3))
    assert browser.take() == []
    assert stored(broker, QUEUE) == numbered(1, 3)


def test_a_browser_of_nothing_leaves_nothing(broker_with: MakeBroker) -> None:
    broker = broker_with()
    browser = broker.client()
    browser.subscribe(QUEUE, browser="true")
    assert broker.destinations == {}
    browser.send("UNSUBSCRIBE", id="0", receipt="r")
    assert browser.take("RECEIPT")


@pytest.mark.parametrize("when", ["at the end", "in the middle"])
@pytest.mark.parametrize("way", ["unsubscribe", "disconnect", "drop"])
def test_a_browser_can_leave_at_any_time(broker_with: MakeBroker, when: str, way: str) -> None:
    broker = broker_with()
    publish_all(broker.client(), QUEUE, numbered(1, 5))
    browser = broker.client()
    if when == "in the middle":
        browser.stop_reading(room_bytes=100)
    browser.subscribe(QUEUE, id="b", browser="true")
    if way == "unsubscribe":
        browser.send("UNSUBSCRIBE", id="b", receipt="r")
        browser.start_reading()
        assert browser.take()[-1].command == "RECEIPT"
        browser.subscribe(QUEUE, id="b", browser="true")
        assert len(browser.take("MESSAGE")) == 6
    elif way == "disconnect":
        browser.send("DISCONNECT", receipt="r")
        browser.start_reading()
        assert browser.take()[-1].command == "RECEIPT"
    else:
        browser.drop()
    assert stored(broker, QUEUE) == numbered(1, 5)


@pytest.mark.parametrize("is_consumed", [False, True])
def test_a_slow_browser_sees_what_was_there_when_it_came_and_is_still_there(
    *, is_consumed: bool, broker_with: MakeBroker
) -> None:
    broker = broker_with(write_batch_bytes=1)
    producer, browser, consumer = (broker.client() for _ in range(3))
    publish_all(producer, QUEUE, numbered(1, 5))
    browser.stop_reading(room_bytes=1)
    browser.subscribe(QUEUE, browser="true")
    publish_all(producer, QUEUE, numbered(6, 7))
    if is_consumed:
        consumer.subscribe(QUEUE)
        assert consumer.bodies() == numbered(1, 7)
    bodies = []
    for _ in range(10):
        browser.read_waiting()
        bodies += browser.bodies()
    # The first one was on its way.
    assert bodies == [*numbered(1, 1 if is_consumed else 5), b""]


def test_what_somebody_has_is_not_shown(broker_with: MakeBroker) -> None:
    broker = broker_with()
    consumer = broker.client()
    consumer.subscribe(QUEUE, ack="client", prefetch_count="2")
    publish_all(broker.client(), QUEUE, numbered(1, 4))
    assert stored(broker, QUEUE) == numbered(3, 4)
    consumer.drop()
    assert stored(broker, QUEUE) == numbered(1, 4)


def test_what_came_back_while_nobody_is_subscribed_is_in_its_place(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with()
    consumer = broker.client()
    consumer.subscribe(QUEUE, id="1", ack="client", prefetch_count="2")
    publish_all(broker.client(), QUEUE, numbered(1, 4))
    consumer.send("UNSUBSCRIBE", id="1")
    consumer.nack(consumer.take("MESSAGE")[-1])
    assert stored(broker, QUEUE) == numbered(1, 4)


def test_a_selector_says_what_is_shown(broker_with: MakeBroker) -> None:
    broker = broker_with()
    producer, browser = broker.client(), broker.client()
    for colour in ("red", "blue", "red"):
        producer.publish(QUEUE, colour.encode(), colour=colour)
    browser.subscribe(QUEUE, browser="true", selector="colour = 'blue'")
    assert browser.bodies() == [b"blue", b""]


def test_browsers_do_not_count_as_consumers(broker_with: MakeBroker) -> None:
    broker = broker_with(exclusive=True)
    browser, consumer = broker.client(), broker.client()
    browser.stop_reading()
    browser.subscribe(QUEUE, browser="true", exclusive="true")
    consumer.subscribe(QUEUE)
    publish_all(broker.client(), QUEUE, numbered(1, 2))
    assert consumer.bodies() == numbered(1, 2)


def test_browsing_goes_together_with_one_in_flight(broker_with: MakeBroker) -> None:
    broker = broker_with(flow="one-in-flight", exclusive=True)
    client = broker.client()
    publish_all(broker.client(), QUEUE, numbered(1, 3))
    client.subscribe("/queue/b", id="work", ack="client")
    client.stop_reading()
    client.subscribe(QUEUE, id="look", ack="client", browser="true")
    client.publish("/queue/b", b"job")
    client.start_reading()
    assert sorted(client.bodies()) == [b"", *numbered(1, 3), b"job"]


def test_dead_letters_and_own_temporary_queues_can_be_browsed() -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.publish("/dlq/a", b"dead")
    client.publish("/temp-queue/a", b"own")
    client.subscribe("/dlq/a", id="1", browser="true")
    client.subscribe("/temp-queue/a", id="2", browser="true")
    assert client.bodies() == [b"dead", b"", b"own", b""]


@pytest.mark.parametrize("name", ["/topic/a", "/temp-topic/a"])
def test_only_queues_can_be_browsed(name: str) -> None:
    client = MemoryBroker().client()
    client.subscribe(name, browser="true")
    assert refusal(client) == "bad-destination"


@pytest.mark.parametrize("value", ["false", "False"])
def test_who_is_no_browser_can_say_so(value: str) -> None:
    client = MemoryBroker().client()
    client.subscribe(QUEUE, browser=value)
    client.publish(QUEUE, b"x")
    assert client.bodies() == [b"x"]


def test_subscriptions_of_browsers_are_counted_until_they_unsubscribe() -> None:
    client = MemoryBroker(BrokerConfig(max_subscriptions=2)).client()
    for number in range(2):
        client.subscribe(QUEUE, id=str(number), browser="true")
    client.send("UNSUBSCRIBE", id="0")
    client.subscribe(QUEUE, id="2", browser="true")
    assert refusal(client) is None
    client.subscribe(QUEUE, id="3", browser="true")
    assert refusal(client) == "too-many-subscriptions"


# Of a queue in the store, browsers show the window.


def test_after_a_restart_there_is_as_much_to_see() -> None:
    store = MemoryStore()
    broker = MemoryBroker(store=store)
    publish_all(broker.client(), QUEUE, numbered(1, 20))
    broker.broker.close()
    broker = MemoryBroker(store=store, clock=broker.clock)
    assert stored(broker, QUEUE) == numbered(1, 20)


def test_what_is_behind_the_window_is_not_shown_but_not_lost_either() -> None:
    broker = MemoryBroker(BrokerConfig(window_messages=5), store=MemoryStore())
    publish_all(broker.client(), QUEUE, numbered(1, 20))
    for _ in range(3):
        assert stored(broker, QUEUE) == numbered(1, 5)
    client = broker.client()
    client.subscribe(QUEUE)
    assert client.bodies() == numbered(1, 20)


@pytest.mark.parametrize("messages", [5, 6, 20])
def test_the_end_counts_the_messages_behind_the_window(messages: int) -> None:
    broker = MemoryBroker(BrokerConfig(window_messages=5), store=MemoryStore())
    publish_all(broker.client(), QUEUE, numbered(1, messages))
    browser = broker.client()
    browser.subscribe(QUEUE, browser="true")
    *shown, end = browser.take("MESSAGE")
    remaining = int(end.headers.get("browser-remaining", "0"))
    assert len(shown) + remaining == messages
    assert (remaining > 0) == ("browser-remaining" in end.headers)


def test_all_priorities_are_shown_in_their_order(broker_with: MakeBroker) -> None:
    broker = broker_with(priority=True)
    for priority in "3951":
        broker.client().publish(QUEUE, priority.encode(), priority=priority)
    assert stored(broker, QUEUE) == [b"9", b"5", b"3", b"1"]


@pytest.mark.parametrize("more", [{}, {"receipt": "r"}, {"x": "a:b"}])
@pytest.mark.parametrize("version", VERSIONS)
def test_no_sender_can_mark_the_end(
    broker_with: MakeBroker, version: str, more: dict[str, str]
) -> None:
    broker = broker_with()
    sender, browser = broker.client(version), broker.client()
    sender.publish(QUEUE, b"1", browser="end", **more)
    sender.publish(QUEUE, b"2", browser="of mine", **more)
    browser.subscribe(QUEUE, browser="true")
    first, second, end = browser.take("MESSAGE")
    assert "browser" not in first.headers
    assert first.headers.get("x") == more.get("x")
    assert second.headers["browser"] == "of mine"
    assert end.headers["browser"] == "end"
