"""Subscriptions: subscribing, resubscribing, handlers, iteration and unsubscribing."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from stompkit.client import (
    BrokerError,
    BufferLimits,
    Client,
    ClientClosedError,
    LoginRefusedError,
    Message,
    QueueOverflowError,
    Subscription,
    SubscriptionEndedError,
)
from stompkit.frames import VERSIONS, Frame, LocalProtocolError, Version
from tests.client.logs import Log
from tests.client.network import Network, Peer, ScriptedEndpoint, failed, online, result, waits

QUEUE = "/queue/a"


def subscribe(
    net: Network, client: Client, endpoint: ScriptedEndpoint, *arguments: Any, **options: Any
) -> tuple[Subscription, Frame]:
    """Subscribe to a queue; return the subscription and its SUBSCRIBE."""
    subscribed = client.subscribe(QUEUE, *arguments, **options)
    net.run()
    [frame] = endpoint.peer.take("SUBSCRIBE")
    endpoint.peer.confirm(frame)
    return net.wait(subscribed), frame


def deliver(net: Network, peer: Peer, frame: Frame, *numbers: int) -> None:
    """Send messages whose bodies are their numbers."""
    for number in numbers:
        peer.message(frame, b"%d" % number, number)
    net.run()


# Subscribing.


def test_a_subscription_is_there_when_its_receipt_has_come(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    subscribed = client.subscribe(QUEUE, headers={"selector": "x = 1"}, prefetch=7)
    net.run()
    assert waits(subscribed)
    [frame] = endpoint.peer.take("SUBSCRIBE")
    endpoint.peer.confirm(frame)
    subscription = net.wait(subscribed)
    assert subscription.destination == QUEUE
    assert frame.headers.pop("receipt")
    assert frame.headers == {
        "id": subscription.id,
        "destination": QUEUE,
        "ack": "client-individual",
        "prefetch-count": "7",
        "activemq.prefetchSize": "7",
        # For Artemis, which counts bytes.
        "consumer-window-size": "7340032",
        "selector": "x = 1",
    }


def test_without_a_prefetch_the_broker_decides(net: Network) -> None:
    endpoint = net.scripted()
    _, frame = subscribe(net, net.connected(endpoint), endpoint, ack="auto")
    assert frame.headers.keys() == {"id", "destination", "ack", "receipt"}
    assert frame.headers["ack"] == "auto"


def test_without_a_receipt_a_subscription_is_there_when_it_is_written(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    result(client.subscribe(QUEUE, receipt=False))
    net.run()
    assert "receipt" not in endpoint.peer.take("SUBSCRIBE")[0].headers


def test_each_subscription_has_an_id(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    client.subscribe(QUEUE, headers={"id": "2"})
    for _ in range(3):
        client.subscribe(QUEUE)
    net.run()
    ids = [frame.headers["id"] for frame in endpoint.peer.take("SUBSCRIBE")]
    assert ids[0] == "2"
    assert len(set(ids)) == 4
    with pytest.raises(ValueError, match="id '2'"):
        client.subscribe(QUEUE, headers={"id": "2"})


@pytest.mark.parametrize(
    "options",
    [
        {"ack": "sometimes"},
        {"prefetch": 0},
        {"concurrency": 0},
        {"ack": "client", "concurrency": 2},
    ],
)
def test_a_subscription_that_makes_no_sense_is_refused(
    net: Network, options: dict[str, Any]
) -> None:
    client = net.client(net.scripted())
    with pytest.raises(ValueError, match=r"ack|prefetch|concurrency"):
        client.subscribe(QUEUE, **options)


def test_a_subscription_that_the_broker_refuses_is_not_made_again(net: Network, log: Log) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    subscribed = client.subscribe(QUEUE)
    net.run()
    endpoint.peer.refuse(endpoint.peer.take("SUBSCRIBE")[0], "not allowed")
    net.advance(0.1)
    assert failed(subscribed, BrokerError).message == "not allowed"
    assert online(client)
    assert endpoint.peer.take("SUBSCRIBE") == []
    assert "not allowed" in log.take_errors()


def test_a_subscription_that_cannot_be_sent_fails(net: Network, log: Log) -> None:
    client = net.connected(net.scripted())
    failed(client.subscribe(QUEUE, headers={"x": "\0"}), LocalProtocolError)
    log.take_errors()


def test_a_closed_client_takes_no_subscriptions(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    waiting = client.subscribe(QUEUE)
    gone = client.disconnect()
    failed(client.subscribe(QUEUE), ClientClosedError)
    net.run()
    endpoint.peer.confirm(endpoint.peer.frames[-1])
    net.wait(gone)
    failed(client.subscribe(QUEUE), ClientClosedError)
    failed(waiting, ClientClosedError)


def test_who_no_longer_waits_for_a_subscription_does_not_have_it(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    subscribed = client.subscribe(QUEUE)
    subscribed.cancel()
    failed(subscribed, CancelledError)
    net.run()
    commands = [frame.command for frame in endpoint.peer.take()]
    assert commands == ["CONNECT", "SUBSCRIBE", "UNSUBSCRIBE"]
    endpoint.peer.drop()
    net.advance(0.1)
    assert endpoint.peer.take("SUBSCRIBE") == []


# Reconnecting.


def test_subscriptions_are_made_again_before_anything_else(net: Network) -> None:
    first, second = net.scripted(), net.scripted()
    client = net.connected(first, second)
    subscription, frame = subscribe(net, client, first, headers={"x": "y"}, prefetch=3)
    client.send(QUEUE)
    net.run()
    first.peer.drop()
    net.advance(0.1)
    _, again, sent = second.peer.take()
    assert sent.command == "SEND"
    del frame.headers["receipt"], again.headers["receipt"]
    assert again == frame
    assert again.headers["id"] == subscription.id


def test_a_subscription_waits_for_a_connection(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.client(endpoint)
    subscribed = client.subscribe(QUEUE)
    net.wait(client.connect())
    assert net.wait(subscribed).destination == QUEUE


def test_a_subscription_that_is_refused_later_ends(net: Network, log: Log) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    subscription, _ = subscribe(net, client, endpoint)
    ended, message = subscription.when_ended(), subscription.get()
    endpoint.peer.drop()
    net.advance(0.1)
    endpoint.peer.refuse(endpoint.peer.take("SUBSCRIBE")[0], "no more")
    net.advance(0.3)
    reason = failed(ended, BrokerError)
    assert failed(message, SubscriptionEndedError).reason is reason
    failed(subscription.when_ended(), BrokerError)
    assert online(client)
    assert endpoint.peer.take("SUBSCRIBE") == []
    log.take_errors()


def test_what_the_broker_has_taken_back_is_not_handed_out(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    subscription, frame = subscribe(net, client, endpoint)
    deliver(net, endpoint.peer, frame, 1, 2)
    assert result(subscription.get()).body == b"1"
    endpoint.peer.drop()
    net.advance(0.1)
    [frame] = endpoint.peer.take("SUBSCRIBE")
    deliver(net, endpoint.peer, frame, 1, 2)
    assert result(subscription.get()).body == b"1"


def test_what_nobody_would_deliver_again_is_handed_out(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    subscription, frame = subscribe(net, client, endpoint, ack="auto")
    deliver(net, endpoint.peer, frame, 1, 2)
    endpoint.peer.drop()
    assert result(subscription.get()).body == b"1"
    result(client.disconnect())
    assert result(subscription.get()).body == b"2"
    failed(subscription.get(), SubscriptionEndedError)


# Reading messages.


def test_a_message_has_what_its_frame_had(net: Network) -> None:
    endpoint = net.scripted()
    subscription, frame = subscribe(net, net.connected(endpoint), endpoint)
    endpoint.peer.message(frame, b"\0\xff", 4, redelivered="true", x="a:b")
    message = net.wait(subscription.get())
    assert message.body == b"\0\xff"
    assert message.destination == QUEUE
    assert message.id == "m4"
    assert message.redelivered
    assert message.headers["x"] == "a:b"
    assert "m4" in repr(message)
    assert subscription.id in repr(subscription)


def test_messages_are_got_in_the_order_of_their_coming(net: Network) -> None:
    endpoint = net.scripted()
    subscription, frame = subscribe(net, net.connected(endpoint), endpoint)
    early = [subscription.get() for _ in range(3)]
    early[1].cancel()
    failed(early[1], CancelledError)
    deliver(net, endpoint.peer, frame, 1, 2, 3, 4)
    assert [result(early[0]).body, result(early[2]).body] == [b"1", b"2"]
    assert [result(subscription.get()).body for _ in range(2)] == [b"3", b"4"]
    assert not result(early[0]).redelivered


def test_what_waits_is_taken_at_once(net: Network) -> None:
    endpoint = net.scripted()
    subscription, frame = subscribe(net, net.connected(endpoint), endpoint)
    assert subscription.take(10, 1000) == []
    deliver(net, endpoint.peer, frame, *range(10))
    assert [message.body for message in subscription.take(3, 10**6)] == [b"0", b"1", b"2"]
    assert [message.body for message in subscription.take(3, 1)] == [b"3"]
    assert subscription.take(3, 0) == []
    assert [result(subscription.get()).body for _ in range(2)] == [b"4", b"5"]
    assert len(subscription.take(10, 10**6)) == 4


def test_iteration_ends_with_the_subscription(net: Network) -> None:
    async def read() -> list[bytes]:
        return [message.body async for message in subscription]

    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint)
    subscription = net.wait(client.subscribe(QUEUE))
    reading = Deferred.fromCoroutine(read())
    deliver(net, endpoint.peer, endpoint.peer.take("SUBSCRIBE")[0], 1, 2)
    assert waits(reading)
    net.wait(subscription.unsubscribe())
    assert result(reading) == [b"1", b"2"]


def test_iteration_raises_what_has_ended_the_subscription(net: Network, log: Log) -> None:
    async def read() -> None:
        async for _ in subscription:
            pass

    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint)
    subscription = net.wait(client.subscribe(QUEUE))
    reading = Deferred.fromCoroutine(read())
    endpoint.version = None
    endpoint.peer.drop()
    net.advance(0.1)
    endpoint.peer.refuse()
    net.run()
    failed(reading, LoginRefusedError)
    log.take_errors()


def test_a_handler_and_an_iterator_exclude_each_other(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint)
    subscription = net.wait(client.subscribe(QUEUE, lambda _: None))
    with pytest.raises(RuntimeError, match="handler"):
        subscription.get()
    with pytest.raises(RuntimeError, match="handler"):
        subscription.take(1, 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_go_to_the_subscription_that_they_name(net: Network, version: Version) -> None:
    endpoint = net.scripted(version)
    client = net.connected(endpoint)
    first, one = subscribe(net, client, endpoint, ack="auto")
    second, two = subscribe(net, client, endpoint, ack="auto")
    endpoint.peer.message(two, b"two")
    endpoint.peer.message(one, b"one")
    assert net.wait(first.get()).body == b"one"
    assert net.wait(second.get()).body == b"two"


def test_a_message_of_an_old_broker_goes_by_its_destination(net: Network) -> None:
    endpoint = net.scripted("1.0")
    client = net.connected(endpoint)
    subscription, _ = subscribe(net, client, endpoint)
    headers = {"destination": QUEUE, "message-id": "1"}
    endpoint.peer.send("MESSAGE", headers, b"mine")
    endpoint.peer.send("MESSAGE", headers | {"destination": "/queue/b"}, b"not mine")
    net.run()
    assert result(subscription.get()).body == b"mine"
    assert waits(subscription.get())


# Handlers.


def test_a_handled_message_is_acknowledged(net: Network) -> None:
    endpoint = net.scripted()
    handled: list[bytes] = []
    _, frame = subscribe(
        net, net.connected(endpoint), endpoint, lambda message: handled.append(message.body)
    )
    deliver(net, endpoint.peer, frame, 1, 2)
    assert handled == [b"1", b"2"]
    assert [frame.headers for frame in endpoint.peer.take("ACK")] == [{"id": "a1"}, {"id": "a2"}]


@pytest.mark.parametrize("coroutine", [True, False])
def test_a_message_is_acknowledged_when_its_handler_has_finished(
    net: Network, *, coroutine: bool
) -> None:
    doors: list[Deferred[None]] = []

    async def handle(_: Message) -> None:
        doors.append(Deferred())
        await doors[-1]

    def handler(message: Message) -> Any:
        if coroutine:
            return handle(message)
        doors.append(Deferred())
        return doors[-1]

    endpoint = net.scripted()
    _, frame = subscribe(net, net.connected(endpoint), endpoint, handler)
    deliver(net, endpoint.peer, frame, 1, 2)
    assert len(doors) == 1  # one message at a time, in order
    assert endpoint.peer.take("ACK") == []
    doors[0].callback(None)
    net.run()
    assert len(endpoint.peer.take("ACK")) == 1
    assert len(doors) == 2


def test_a_handler_gets_several_messages_at_a_time_if_it_wants_them(net: Network) -> None:
    doors: dict[bytes, Deferred[None]] = {}

    def handler(message: Message) -> Deferred[None]:
        return doors.setdefault(message.body, Deferred())

    endpoint = net.scripted()
    _, frame = subscribe(net, net.connected(endpoint), endpoint, handler, concurrency=2)
    deliver(net, endpoint.peer, frame, 1, 2, 3)
    assert list(doors) == [b"1", b"2"]
    doors[b"2"].callback(None)
    net.run()
    assert list(doors) == [b"1", b"2", b"3"]
    assert [frame.headers["id"] for frame in endpoint.peer.take("ACK")] == ["a2"]


def test_a_message_whose_handler_fails_is_refused(net: Network, log: Log) -> None:
    async def handler(message: Message) -> None:
        if message.body == b"1":
            raise RuntimeError("indigestible")

    endpoint = net.scripted()
    _, frame = subscribe(net, net.connected(endpoint), endpoint, handler)
    deliver(net, endpoint.peer, frame, 1, 2)
    assert [frame.headers for frame in endpoint.peer.take("NACK")] == [{"id": "a1"}]
    assert endpoint.peer.frames[-1].headers == {"id": "a2"}
    assert "RuntimeError: indigestible" in log.take_errors()


def test_a_message_whose_handler_fails_can_be_kept(net: Network, log: Log) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    _, frame = subscribe(net, client, endpoint, lambda _: 1 / 0, nack_on_error=False)
    endpoint.peer.take()
    deliver(net, endpoint.peer, frame, 1)
    assert endpoint.peer.take() == []
    log.take_errors()


def test_1_0_has_no_way_to_refuse_a_message(net: Network, log: Log) -> None:
    endpoint = net.scripted("1.0")
    client = net.connected(endpoint)
    _, frame = subscribe(net, client, endpoint, lambda _: 1 / 0)
    endpoint.peer.take()
    deliver(net, endpoint.peer, frame, 1)
    assert endpoint.peer.take() == []
    assert online(client)
    assert "NACK" in log.text
    log.take_errors()


def test_what_a_handler_has_settled_is_left_as_it_is(net: Network) -> None:
    async def handler(message: Message) -> None:
        await message.nack(headers={"requeue": "false"})

    endpoint = net.scripted()
    _, frame = subscribe(net, net.connected(endpoint), endpoint, handler)
    endpoint.peer.take()
    deliver(net, endpoint.peer, frame, 1)
    [nack] = endpoint.peer.take()
    assert nack.command == "NACK"
    assert nack.headers == {"id": "a1", "requeue": "false"}


def test_what_is_handled_after_its_connection_is_not_acknowledged(net: Network) -> None:
    door: Deferred[None] = Deferred()
    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint)
    net.wait(client.subscribe(QUEUE, lambda _: door))
    deliver(net, endpoint.peer, endpoint.peer.take("SUBSCRIBE")[0], 1)
    endpoint.peer.drop()
    net.advance(0.1)
    door.callback(None)
    net.run()
    assert online(client)
    assert [frame.command for frame in endpoint.peer.take()] == ["CONNECT", "SUBSCRIBE"]


def test_in_the_mode_auto_nothing_is_acknowledged(net: Network) -> None:
    handled: list[Message] = []
    endpoint = net.scripted()
    client = net.connected(endpoint)
    _, frame = subscribe(net, client, endpoint, handled.append, ack="auto")
    endpoint.peer.take()
    deliver(net, endpoint.peer, frame, 1)
    assert len(handled) == 1
    assert endpoint.peer.take() == []


# Unsubscribing.


def test_unsubscribe_waits_for_its_receipt(net: Network) -> None:
    endpoint = net.scripted()
    subscription, _ = subscribe(net, net.connected(endpoint), endpoint)
    ended, left = subscription.when_ended(), subscription.unsubscribe({"durable": "true"})
    net.run()
    assert waits(left)
    result(ended)
    [frame] = endpoint.peer.take("UNSUBSCRIBE")
    endpoint.peer.confirm(frame)
    net.wait(left)
    assert frame.headers.pop("receipt")
    assert frame.headers == {"id": subscription.id, "destination": QUEUE, "durable": "true"}
    result(subscription.unsubscribe())
    net.run()
    assert endpoint.peer.take("UNSUBSCRIBE") == []


def test_a_subscription_that_was_left_is_not_made_again(net: Network) -> None:
    endpoint = net.scripted()
    subscription, _ = subscribe(net, net.connected(endpoint), endpoint)
    left = subscription.unsubscribe()
    net.run()
    endpoint.peer.drop()  # ends the subscription just like a receipt
    net.advance(0.1)
    result(left)
    assert endpoint.peer.take("SUBSCRIBE") == []


def test_a_subscription_can_be_left_without_a_connection(net: Network) -> None:
    endpoint = net.scripted()
    client = net.client(endpoint)
    subscribed = client.subscribe(QUEUE, headers={"id": "x"})
    subscribed.addErrback(lambda _: None)
    subscribed.cancel()
    net.wait(client.connect())
    assert endpoint.peer.take("SUBSCRIBE") == []


def test_a_refused_unsubscribe_is_told(net: Network) -> None:
    endpoint = net.scripted()
    subscription, _ = subscribe(net, net.connected(endpoint), endpoint)
    left = subscription.unsubscribe()
    net.run()
    endpoint.peer.refuse(endpoint.peer.take("UNSUBSCRIBE")[0])
    net.run()
    failed(left, BrokerError)


def test_a_subscription_that_was_left_can_still_be_refused(net: Network, log: Log) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    subscribed = client.subscribe(QUEUE)
    net.run()
    subscribed.cancel()
    failed(subscribed, CancelledError)
    endpoint.peer.refuse(endpoint.peer.take("SUBSCRIBE")[0])
    net.advance(0.1)
    assert online(client)
    log.take_errors()


@pytest.mark.parametrize("headers", [{}, {"durable": "true"}])
def test_the_late_refusal_of_a_subscription_spares_its_successor(
    net: Network, log: Log, headers: dict[str, str]
) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    first = client.subscribe(QUEUE, headers={"id": "x"})
    net.run()
    first.cancel()
    failed(first, CancelledError)
    second = client.subscribe(QUEUE, headers={"id": "x"} | headers)
    endpoint.peer.refuse(endpoint.peer.take("SUBSCRIBE")[0])
    net.advance(0.1)
    endpoint.peer.confirm(*endpoint.peer.take("SUBSCRIBE"))
    net.wait(second)
    log.take_errors()


def test_messages_of_a_subscription_that_was_left_are_dropped(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    subscription, frame = subscribe(net, client, endpoint)
    deliver(net, endpoint.peer, frame, 1)
    subscription.unsubscribe()
    deliver(net, endpoint.peer, frame, 2)
    failed(subscription.get(), SubscriptionEndedError)
    assert online(client)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("headers", [None, {"durable": "true"}])
@pytest.mark.parametrize("end", ["confirmed", "cancelled", "lost"])
def test_an_id_that_is_used_again_gets_no_messages_of_its_earlier_subscription(
    net: Network, version: Version, headers: dict[str, str] | None, end: str
) -> None:
    endpoint = net.scripted(version)
    client = net.connected(endpoint)
    first, frame = subscribe(net, client, endpoint, headers={"id": "x"})
    left = first.unsubscribe(headers)
    ready = client.subscribe("/queue/b", headers={"id": "x"})
    if end == "cancelled":
        left.cancel()
        failed(left, CancelledError)
    deliver(net, endpoint.peer, frame, 1)
    [leave] = endpoint.peer.take()
    assert leave.command == "UNSUBSCRIBE"
    if end == "lost":
        endpoint.peer.drop()
        net.advance(0.1)
    else:
        endpoint.peer.confirm(leave)
        net.run()
    [again] = endpoint.peer.take("SUBSCRIBE")
    endpoint.peer.confirm(again)
    second = net.wait(ready)
    deliver(net, endpoint.peer, again, 2)
    assert result(second.get()).body == b"2"
    assert second.take(10, 1000) == []


def test_an_id_without_receipts_is_used_again_at_once(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    first = net.wait(client.subscribe(QUEUE, headers={"id": "x"}, receipt=False))
    first.unsubscribe()
    net.wait(client.subscribe("/queue/b", headers={"id": "x"}, receipt=False))
    net.run()
    assert [each.command for each in endpoint.peer.take()[-2:]] == ["UNSUBSCRIBE", "SUBSCRIBE"]


def test_subscriptions_end_with_the_client(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint)
    subscription = net.wait(client.subscribe(QUEUE))
    ended, message = subscription.when_ended(), subscription.get()
    net.wait(client.disconnect())
    result(ended)
    assert failed(message, SubscriptionEndedError).reason is None
    result(subscription.when_ended())


# More messages than the client can buffer.


SMALL = BufferLimits(queue_messages=4, queue_bytes=10_000)


def test_reading_stops_while_a_queue_is_full(net: Network) -> None:
    endpoint = net.scripted()
    subscription, frame = subscribe(net, net.connected(endpoint, buffers=SMALL), endpoint)
    transport = endpoint.peer.transport
    deliver(net, endpoint.peer, frame, 1, 2, 3)
    assert transport.reads()
    deliver(net, endpoint.peer, frame, 4)
    assert not transport.reads()
    deliver(net, endpoint.peer, frame, 5)
    for number in range(1, 6):
        assert net.wait(subscription.get()).body == b"%d" % number
        assert transport.reads() == (number >= 2)


def test_a_queue_is_bounded_in_octets_too(net: Network) -> None:
    endpoint = net.scripted()
    subscription, frame = subscribe(net, net.connected(endpoint, buffers=SMALL), endpoint)
    endpoint.peer.message(frame, bytes(6_000))
    net.run()
    assert endpoint.peer.transport.reads()
    endpoint.peer.message(frame, bytes(6_000))
    net.run()
    assert not endpoint.peer.transport.reads()
    result(subscription.get())
    assert not endpoint.peer.transport.reads()
    result(subscription.get())
    assert endpoint.peer.transport.reads()


def test_a_queue_has_room_for_what_the_broker_may_send_ahead(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=SMALL)
    _, frame = subscribe(net, client, endpoint, prefetch=6)
    deliver(net, endpoint.peer, frame, 1, 2, 3, 4, 5)
    assert endpoint.peer.transport.reads()


def test_a_slow_handler_stops_reading(net: Network) -> None:
    doors: list[Deferred[None]] = []

    def handler(_: Message) -> Deferred[None]:
        doors.append(Deferred())
        return doors[-1]

    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=SMALL)
    _, frame = subscribe(net, client, endpoint, handler, ack="auto")
    deliver(net, endpoint.peer, frame, 1, 2, 3, 4, 5)
    assert not endpoint.peer.transport.reads()
    for door in doors:  # the list grows during the loop
        door.callback(None)
    assert len(doors) == 5
    assert endpoint.peer.transport.reads()


def test_who_does_not_read_does_not_complain_of_silence(net: Network) -> None:
    endpoint = net.scripted()
    endpoint.headers = {"heart-beat": "1000,1000"}
    client = net.connected(endpoint, buffers=SMALL, heart_beat_ms=(1000, 1000))
    subscription, frame = subscribe(net, client, endpoint, ack="auto")
    deliver(net, endpoint.peer, frame, 1, 2, 3, 4)
    net.advance(10)
    assert endpoint.attempts == 1
    assert endpoint.peer.beats >= 10
    for _ in range(4):
        result(subscription.get())
    net.advance(1.9)
    assert endpoint.attempts == 1
    net.advance(0.5)  # since reading resumed, a heart-beat interval has passed
    assert endpoint.attempts == 2


def test_the_silence_of_the_broker_counts_from_when_it_is_read_again(net: Network) -> None:
    endpoint = net.scripted()
    endpoint.headers = {"heart-beat": "1000,0"}
    client = net.connected(endpoint, buffers=SMALL, heart_beat_ms=(0, 1000))
    subscription, frame = subscribe(net, client, endpoint, ack="auto")
    deliver(net, endpoint.peer, frame, 1, 2, 3, 4)
    net.advance(3.5)  # between two deadlines, which come every 2 s
    for _ in range(4):
        result(subscription.get())
    net.advance(1.75)
    assert endpoint.attempts == 1


def test_a_receipt_that_is_waited_for_is_read_through_a_full_queue(net: Network) -> None:
    # Otherwise a handler that sends a message would wait for ever.
    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=SMALL)

    def handler(message: Message) -> Deferred[None]:
        return client.send("/queue/b", message.body)

    _, frame = subscribe(net, client, endpoint, handler, ack="auto")
    deliver(net, endpoint.peer, frame, *range(10))
    for number in range(10):
        [sent] = endpoint.peer.take("SEND")
        assert sent.body == b"%d" % number
        endpoint.peer.confirm(sent)
        net.run()
    assert endpoint.peer.transport.reads()


def test_reading_stops_when_the_last_receipt_has_come(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=SMALL)
    _, frame = subscribe(net, client, endpoint, ack="auto")
    first, second = client.send("/queue/b"), client.send("/queue/b")
    deliver(net, endpoint.peer, frame, 1, 2, 3, 4)
    assert endpoint.peer.transport.reads()
    first_frame, second_frame = endpoint.peer.take("SEND")
    endpoint.peer.confirm(first_frame)
    net.wait(first)
    assert endpoint.peer.transport.reads()
    endpoint.peer.confirm(second_frame)
    net.wait(second)
    assert not endpoint.peer.transport.reads()


def test_what_could_not_be_sent_has_no_receipt_to_be_waited_for(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=SMALL)
    _, frame = subscribe(net, client, endpoint, ack="auto")
    failed(client.send("/queue/b", b"", {"x": "\0"}), LocalProtocolError)
    deliver(net, endpoint.peer, frame, 1, 2, 3, 4)
    assert not endpoint.peer.transport.reads()


def test_a_queue_that_stays_full_over_a_lost_connection_stops_reading_again(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=SMALL)
    subscription, frame = subscribe(net, client, endpoint, ack="auto")
    deliver(net, endpoint.peer, frame, 1, 2, 3, 4)
    endpoint.peer.drop()
    net.advance(0.1)
    endpoint.peer.confirm(endpoint.peer.take("SUBSCRIBE")[0])
    net.run()
    assert not endpoint.peer.transport.reads()
    result(subscription.get())
    result(subscription.get())
    assert endpoint.peer.transport.reads()


def test_a_new_connection_is_not_read_at_all_where_a_queue_is_full(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=SMALL)
    net.wait(client.subscribe(QUEUE, ack="auto", receipt=False))
    deliver(net, endpoint.peer, endpoint.peer.take("SUBSCRIBE")[0], 1, 2, 3, 4)
    assert not endpoint.peer.transport.reads()
    endpoint.peer.drop()
    net.advance(0.1)
    assert online(client)
    assert not endpoint.peer.transport.reads()


def test_a_queue_that_a_lost_connection_has_emptied_stops_nothing(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=SMALL)
    _, frame = subscribe(net, client, endpoint, ack="client")
    deliver(net, endpoint.peer, frame, 1, 2, 3, 4)
    assert not endpoint.peer.transport.reads()
    endpoint.peer.drop()
    net.advance(0.1)
    endpoint.peer.confirm(endpoint.peer.take("SUBSCRIBE")[0])
    net.run()
    assert endpoint.peer.transport.reads()


def test_room_that_is_made_without_a_connection_concerns_none(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=SMALL)
    subscription, frame = subscribe(net, client, endpoint, ack="auto")
    deliver(net, endpoint.peer, frame, 1, 2, 3, 4)
    lost = endpoint.peer
    lost.drop()
    result(subscription.get())
    result(subscription.get())
    assert not lost.transport.reads()
    net.advance(0.1)
    assert endpoint.peer.transport.reads()


def test_a_full_queue_that_has_been_left_stops_nothing(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=SMALL)
    subscription, frame = subscribe(net, client, endpoint, ack="auto")
    deliver(net, endpoint.peer, frame, 1, 2, 3, 4)
    assert not endpoint.peer.transport.reads()
    left = subscription.unsubscribe()
    net.run()
    endpoint.peer.confirm(endpoint.peer.take("UNSUBSCRIBE")[0])
    net.wait(left)
    assert endpoint.peer.transport.reads()
    assert result(subscription.get()).body == b"1"


def test_what_cannot_be_held_back_ends_the_subscription_in_the_end(net: Network, log: Log) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=SMALL)
    subscription, frame = subscribe(net, client, endpoint)
    client.send("/queue/b")  # its receipt never arrives
    deliver(net, endpoint.peer, frame, *range(64))
    ended = subscription.when_ended()
    assert waits(ended)
    deliver(net, endpoint.peer, frame, 64)
    failed(ended, QueueOverflowError)
    assert len(endpoint.peer.take("UNSUBSCRIBE")) == 1
    assert online(client)
    log.take_errors()


def test_a_subscription_that_another_one_ends_before_its_turn_is_not_sent(net: Network) -> None:
    """The broker would give messages to nobody, or refuse to end what it does not know."""
    endpoint = net.scripted()
    client = net.client(endpoint)
    first, second = (client.subscribe(QUEUE, receipt=False, headers={"id": each}) for each in "12")
    first.addCallback(lambda _: second.cancel())
    net.wait(client.connect())
    net.run()
    failed(second, CancelledError)
    assert [
        (each.command, each.headers["id"]) for each in endpoint.peer.take() if "id" in each.headers
    ] == [("SUBSCRIBE", "1")]


# An ERROR that names no frame.


def test_a_subscription_that_each_connection_refuses_without_naming_it_ends(
    net: Network, log: Log
) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    first, second = client.subscribe(QUEUE), client.subscribe("/queue/b")
    for _ in range(3):
        net.run()
        assert waits(first)
        endpoint.peer.refuse(message="no such thing")
        net.advance(1.0)
    assert failed(first, BrokerError).message == "no such thing"
    # Only the first unanswered frame can be the reason.
    assert [each.headers["destination"] for each in endpoint.peer.take("SUBSCRIBE")] == ["/queue/b"]
    endpoint.peer.confirm(endpoint.peer.frames[-1])
    net.wait(second)
    assert "no such thing" in log.take_errors()


@pytest.mark.parametrize("interruption", ["confirmed", "lost", "temporary", "another"])
def test_an_error_that_names_no_frame_is_no_refusal_by_itself(
    net: Network, interruption: str
) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    subscribed = client.subscribe(QUEUE)
    for turn in range(5):
        net.run()
        if turn % 2 == 0:
            endpoint.peer.refuse()
        elif interruption == "confirmed":
            endpoint.peer.confirm(*endpoint.peer.take("SUBSCRIBE"))
            net.run()
            endpoint.peer.drop()
        elif interruption == "lost":
            endpoint.peer.drop()
        elif interruption == "temporary":
            endpoint.peer.refuse(code="shutting-down")
        else:
            endpoint.peer.send("ERROR", {"message": "no", "receipt-id": "nobody's"})
        net.advance(60.0)
    endpoint.peer.confirm(*endpoint.peer.take("SUBSCRIBE")[-1:])
    net.wait(subscribed)
    assert online(client)


# Durable subscriptions, which a lost connection does not end.


DURABLE = {"durable": "true", "auto-delete": "false"}


@pytest.mark.parametrize("moment", ["disconnected", "unanswered"])
@pytest.mark.parametrize("server", ["", "RabbitMQ/4.1.0", "ActiveMQ/6.1.0"])
def test_a_durable_subscription_is_removed_by_the_next_connection(
    net: Network, moment: str, server: str
) -> None:
    endpoint = net.scripted()
    endpoint.headers["server"] = server
    client = net.connected(endpoint)
    subscription, _ = subscribe(net, client, endpoint, headers=DURABLE)
    if moment == "disconnected":
        endpoint.peer.drop()
        net.run()
    left = subscription.unsubscribe(DURABLE)
    if moment == "unanswered":
        net.run()
        endpoint.peer.drop()
    net.advance(0.1)
    assert waits(left)
    frames = endpoint.peer.take()[1:]
    commands = [each.command for each in frames]
    # ActiveMQ removes only inactive ones, and RabbitMQ only active ones.
    assert commands == ["SUBSCRIBE", "UNSUBSCRIBE"][server.startswith("ActiveMQ") :]
    assert all(each.headers.items() >= DURABLE.items() for each in frames)
    endpoint.peer.confirm(*frames)
    net.wait(left)
    result(subscription.unsubscribe(DURABLE))
    endpoint.peer.drop()
    net.advance(0.2)
    assert [each.command for each in endpoint.peer.take()] == ["CONNECT"]


@pytest.mark.parametrize("server", ["RabbitMQ/4.1.0", "ActiveMQ/6.1.0"])
def test_a_durable_subscription_in_use_is_removed(net: Network, server: str) -> None:
    endpoint = net.scripted()
    endpoint.headers["server"] = server
    subscription, frame = subscribe(net, net.connected(endpoint), endpoint, headers=DURABLE)
    left = subscription.unsubscribe(DURABLE)
    net.run()
    *before, last = endpoint.peer.take()
    # ActiveMQ refuses to remove what is in use; an UNSUBSCRIBE with the id alone ends the use.
    assert [each.headers.get("durable") for each in before] == [None][: server.startswith("A")]
    assert all(each.headers["id"] == frame.headers["id"] for each in before)
    assert (last.command, last.headers["durable"]) == ("UNSUBSCRIBE", "true")
    assert waits(left)
    endpoint.peer.confirm(*before, last)
    net.wait(left)


def test_a_durable_subscription_that_was_left_can_still_be_removed(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    subscription = net.wait(net.connected(endpoint).subscribe(QUEUE, headers=DURABLE))
    net.wait(subscription.unsubscribe())
    net.wait(subscription.unsubscribe(DURABLE))
    last = endpoint.peer.take("UNSUBSCRIBE")[-1]
    assert last.headers.items() >= DURABLE.items()


def test_a_removal_that_no_broker_answers_fails_with_the_client(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    subscription, _ = subscribe(net, client, endpoint, headers=DURABLE)
    endpoint.refuses = True
    endpoint.peer.drop()
    net.run()
    left = subscription.unsubscribe(DURABLE)
    result(client.disconnect())
    failed(left, ClientClosedError)
    failed(subscription.unsubscribe(DURABLE), ClientClosedError)


@pytest.mark.parametrize("is_named", [False, True])
def test_a_refused_removal_is_told(net: Network, *, is_named: bool) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    subscription, _ = subscribe(net, client, endpoint, headers=DURABLE)
    endpoint.peer.drop()
    net.run()
    left = subscription.unsubscribe(DURABLE)
    for _ in range(1 if is_named else 3):
        net.advance(10.0)
        assert waits(left)
        [frame] = endpoint.peer.take("SUBSCRIBE")
        endpoint.peer.refuse(frame if is_named else None)
        net.run()
    failed(left, BrokerError)
    net.advance(60.0)
    assert endpoint.peer.take("SUBSCRIBE") == []
    assert online(client)


@pytest.mark.parametrize("was_sent", [False, True])
def test_what_a_lost_connection_has_removed_is_removed(net: Network, *, was_sent: bool) -> None:
    endpoint = net.scripted()
    endpoint.headers["server"] = "ActiveMQ/6.1.0"
    subscription, _ = subscribe(net, net.connected(endpoint), endpoint, headers=DURABLE)
    if not was_sent:
        endpoint.peer.drop()
        net.run()
    left = subscription.unsubscribe(DURABLE)
    if was_sent:
        net.run()
        endpoint.peer.drop()
    net.advance(0.1)
    [frame] = endpoint.peer.take("UNSUBSCRIBE")
    endpoint.peer.refuse(frame, "No durable subscription exists for clientID: a")
    net.run()
    if was_sent:
        result(left)
    else:
        failed(left, BrokerError)


def test_an_error_that_names_no_frame_does_not_refuse_a_removal(net: Network) -> None:
    endpoint = net.scripted()
    subscription, _ = subscribe(net, net.connected(endpoint), endpoint, headers=DURABLE)
    left = subscription.unsubscribe(DURABLE)
    for turn in range(6):
        net.run()
        if turn % 2:
            endpoint.peer.drop()
        else:
            endpoint.peer.refuse()
        net.advance(60.0)
    assert waits(left)
    endpoint.peer.confirm(*endpoint.peer.take()[-2:])
    net.wait(left)


def test_a_durable_subscription_made_again_is_not_removed(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    subscription, _ = subscribe(net, client, endpoint, headers=DURABLE | {"id": "x"})
    left = subscription.unsubscribe(DURABLE)
    client.subscribe(QUEUE, headers=DURABLE | {"id": "x"})
    net.run()
    endpoint.peer.drop()
    net.advance(0.1)
    result(left)
    assert [each.command for each in endpoint.peer.take()] == ["CONNECT", "SUBSCRIBE"]


@pytest.mark.parametrize("moment", ["connected", "disconnected"])
def test_a_removal_spares_the_subscription_that_has_its_id(net: Network, moment: str) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint)
    first = net.wait(client.subscribe(QUEUE, headers=DURABLE | {"id": "x"}))
    net.wait(first.unsubscribe())
    net.wait(client.subscribe(QUEUE, headers=DURABLE | {"id": "x"}))
    endpoint.peer.take()
    if moment == "disconnected":
        endpoint.peer.drop()
        net.run()
    result(first.unsubscribe(DURABLE))
    net.advance(0.1)
    commands = [each.command for each in endpoint.peer.take()]
    assert commands == ([] if moment == "connected" else ["CONNECT", "SUBSCRIBE"])
