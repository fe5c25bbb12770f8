"""Sending: receipts, resending, order, bounds and back-pressure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from stompkit.client import (
    BrokerError,
    BufferFullError,
    BufferLimits,
    Client,
    ClientClosedError,
    TransactionLostError,
)
from stompkit.frames import Frame, LocalProtocolError
from tests.client.network import Network, failed, online, result, waits

QUEUE = "/queue/a"


def bodies(frames: Iterable[Frame]) -> list[bytes]:
    return [frame.body for frame in frames]


def send(client: Client, *numbers: int, receipt: bool = True) -> list[Deferred[None]]:
    """Send messages whose bodies are numbers."""
    return [client.send(QUEUE, b"%d" % number, receipt=receipt) for number in numbers]


# Receipts.


def test_a_message_goes_out_as_it_is_with_nothing_added_but_a_receipt(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    headers = {"content-type": "text/plain", "x": "a:b"}
    client.send(QUEUE, b"hello", headers)
    net.run()
    frame = endpoint.peer.frames[-1]
    assert frame.command == "SEND"
    assert frame.body == b"hello"
    assert frame.headers.pop("receipt")
    assert frame.headers.pop("content-length") == "5"
    assert frame.headers == {**headers, "destination": QUEUE}
    assert headers == {"content-type": "text/plain", "x": "a:b"}


@pytest.mark.parametrize("code", [None, "shutting-down"])
def test_frames_sent_between_a_receipt_and_an_error_go_to_the_next_connection(
    net: Network, code: str | None
) -> None:
    """Both arrive at once, so the session has failed when the caller learns of the receipt."""
    endpoint = net.scripted()
    client = net.connected(endpoint)
    subscribed = client.subscribe(QUEUE, headers={"id": "s"})
    net.run()
    [frame] = endpoint.peer.take("SUBSCRIBE")
    endpoint.peer.confirm(frame)
    endpoint.peer.message(frame)
    subscription = net.wait(subscribed)
    message = net.wait(subscription.get())
    later: dict[str, Deferred[Any]] = {}

    def confirmed(_: None) -> None:
        later["send"] = client.send(QUEUE, b"2")
        later["subscribe"] = client.subscribe("/queue/b")
        later["ack"] = message.ack()
        later["commit"] = Deferred.fromCoroutine(commit())
        later["unsubscribe"] = subscription.unsubscribe()

    async def commit() -> None:
        async with client.transaction() as transaction:
            transaction.send(QUEUE, b"3")

    [first] = send(client, 1)
    first.addCallback(confirmed)
    net.run()
    endpoint.peer.confirm(endpoint.peer.take("SEND")[0])
    endpoint.peer.refuse(code=code)
    net.run()
    lost = failed(later["commit"], TransactionLostError)
    assert not lost.outcome_unknown
    assert result(later["ack"]) is False
    result(later["unsubscribe"])
    assert waits(later["send"])
    assert waits(later["subscribe"])
    endpoint.obliging = True
    net.advance(0.1)
    net.wait(later["send"])
    net.wait(later["subscribe"])
    commands = [each.command for each in endpoint.peer.take()]
    assert commands == ["CONNECT", "SUBSCRIBE", "SEND"]


def test_a_message_is_sent_when_its_receipt_has_come(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    first, second = send(client, 1, 2)
    net.run()
    assert waits(first)
    # A broker may confirm requests in any order.
    endpoint.peer.confirm(endpoint.peer.take("SEND")[1])
    net.run()
    assert waits(first)
    result(second)


def test_the_receipt_can_be_chosen(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    sent = client.send(QUEUE, b"", {"receipt": "mine"})
    with pytest.raises(ValueError, match="mine"):
        client.send(QUEUE, b"", {"receipt": "mine"})
    net.run()
    endpoint.peer.send("RECEIPT", {"receipt-id": "mine"})
    net.wait(sent)
    client.send(QUEUE, b"", {"receipt": "mine"})
    net.run()
    assert len(endpoint.peer.take("SEND")) == 2


def test_a_new_receipt_is_none_that_somebody_has_chosen(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    client.send(QUEUE)
    net.run()
    [frame] = endpoint.peer.take("SEND")
    number = int(frame.headers["receipt"].removeprefix("stompkit-"))
    client.send(QUEUE, b"", {"receipt": f"stompkit-{number + 1}"})
    client.send(QUEUE)
    net.run()
    receipts = {frame.headers["receipt"] for frame in endpoint.peer.take("SEND")}
    assert len(receipts) == 2


def test_a_receipt_that_nobody_waits_for_is_ignored(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    endpoint.peer.send("RECEIPT", {"receipt-id": "what"})
    net.run()
    assert online(client)


def test_without_a_receipt_a_message_is_sent_when_it_is_written(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    [sent] = send(client, 1, receipt=False)
    result(sent)
    net.run()
    [frame] = endpoint.peer.take("SEND")
    assert "receipt" not in frame.headers


def test_what_stomp_cannot_carry_fails_alone(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint)
    failed(client.send(QUEUE, b"", {"x": "\0"}), LocalProtocolError)
    failed(client.send(QUEUE, b"", {"": "x"}, receipt=False), LocalProtocolError)
    net.wait(client.send(QUEUE))
    with pytest.raises(TypeError, match="bytes"):
        client.send(QUEUE, "text")  # type: ignore[arg-type]  # what the check is for


# Resending.


def test_what_was_not_confirmed_is_sent_again_as_it_was_and_in_order(net: Network) -> None:
    first, second = net.scripted(), net.scripted()
    client = net.connected(first, second)
    sent = [client.send(QUEUE, b"%d" % n, {"message-id": f"m{n}"}) for n in range(5)]
    net.run()
    before = first.peer.take("SEND")
    first.peer.confirm(before[1], before[3])
    net.run()
    first.peer.drop()
    sent.append(client.send(QUEUE, b"5", {"message-id": "m5"}))
    net.advance(0.1)
    after = second.peer.take("SEND")
    assert after[:3] == [before[0], before[2], before[4]]
    assert bodies(after) == [b"0", b"2", b"4", b"5"]
    assert [waits(deferred) for deferred in sent] == [True, False, True, False, True, True]
    second.peer.confirm(*after)
    net.run()
    for deferred in sent:
        result(deferred)


def test_what_was_confirmed_is_not_sent_again(net: Network) -> None:
    first, second = net.scripted(obliging=True), net.scripted()
    client = net.connected(first, second)
    net.wait(client.send(QUEUE))
    first.peer.drop()
    net.advance(0.1)
    assert online(client)
    assert second.peer.take("SEND") == []


def test_it_is_sent_again_as_often_as_it_takes(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    sent = send(client, 1, 2)
    for _ in range(4):
        net.run()
        assert bodies(endpoint.peer.take("SEND")) == [b"1", b"2"]
        endpoint.peer.drop()
        net.advance(1.0)
    endpoint.peer.confirm(*endpoint.peer.take("SEND"))
    net.run()
    for deferred in sent:
        result(deferred)


def test_without_a_receipt_nothing_is_sent_twice(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    send(client, 1, receipt=False)
    net.run()
    endpoint.peer.drop()
    waiting = send(client, 2, receipt=False)
    assert waits(waiting[0])
    net.advance(0.1)
    result(waiting[0])
    assert bodies(endpoint.peer.take("SEND")) == [b"2"]


def test_messages_can_be_sent_before_there_is_a_connection(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.client(endpoint)
    sent = [*send(client, 1), *send(client, 2, receipt=False), *send(client, 3)]
    client.connect()
    net.run()
    for deferred in sent:
        result(deferred)
    assert bodies(endpoint.peer.take("SEND")) == [b"1", b"2", b"3"]


def test_a_later_version_of_the_protocol_may_not_carry_what_the_first_did(net: Network) -> None:
    new, old = net.scripted("1.2"), net.scripted("1.0")
    client = net.connected(new, old)
    sent = client.send(QUEUE, b"", {"x": "two\nlines"})
    net.run()
    new.peer.drop()
    net.advance(0.1)
    failed(sent, LocalProtocolError)
    assert online(client)


# Refusals.


def test_what_the_broker_refuses_fails_and_is_not_sent_again(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    sent = send(client, 1, 2, 3)
    net.run()
    frames = endpoint.peer.take("SEND")
    endpoint.peer.confirm(frames[0])
    endpoint.peer.refuse(frames[1], "queue full", code="q")
    net.advance(0.1)
    result(sent[0])
    error = failed(sent[1], BrokerError)
    assert (error.message, error.body) == ("queue full", b"because")
    assert error.headers["stompkit-code"] == "q"
    assert bodies(endpoint.peer.take("SEND")) == [b"3"]


def test_an_error_that_names_nothing_leaves_all_to_be_sent_again(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    sent = send(client, 1, 2)
    net.run()
    endpoint.peer.send("ERROR", {}, b"oops")
    net.advance(0.1)
    assert all(map(waits, sent))
    assert bodies(endpoint.peer.take("SEND")) == [b"1", b"2"]


def test_an_error_that_names_what_nobody_waits_for_is_harmless(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    [sent] = send(client, 1)
    net.run()
    endpoint.peer.send("ERROR", {"receipt-id": "what"})
    net.advance(0.1)
    assert waits(sent)
    assert online(client)


def test_who_is_told_of_a_refusal_can_send_at_once(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    again: list[Deferred[None]] = []
    client.send(QUEUE, b"bad").addErrback(lambda _: again.append(client.send(QUEUE, b"good")))
    net.run()
    endpoint.peer.refuse(endpoint.peer.take("SEND")[0])
    net.advance(0.1)
    [frame] = endpoint.peer.take("SEND")
    assert frame.body == b"good"
    endpoint.peer.confirm(frame)
    net.wait(again[0])


# Bounds.


@pytest.mark.parametrize("receipt", [True, False])
def test_a_full_buffer_takes_no_more_messages(net: Network, *, receipt: bool) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.client(endpoint, buffers=BufferLimits(send_messages=3))
    sent = send(client, 1, 2, 3, receipt=receipt)
    [refused] = send(client, 4, receipt=receipt)
    assert "3 messages" in str(failed(refused, BufferFullError))
    net.wait(client.connect())
    for deferred in sent:
        result(deferred)
    net.wait(client.send(QUEUE, b"5", receipt=receipt))
    assert bodies(endpoint.peer.take("SEND")) == [b"1", b"2", b"3", b"5"]


def test_unconfirmed_messages_fill_the_buffer(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=BufferLimits(send_messages=2))
    sent = send(client, 1, 2)
    net.run()
    failed(client.send(QUEUE), BufferFullError)
    endpoint.peer.confirm(endpoint.peer.take("SEND")[0])
    net.wait(sent[0])
    client.send(QUEUE)
    net.run()
    assert len(endpoint.peer.take("SEND")) == 1


def test_the_buffer_is_bounded_in_octets_too(net: Network) -> None:
    client = net.client(net.scripted(), buffers=BufferLimits(send_bytes=1_000))
    client.send(QUEUE, bytes(600)).addErrback(lambda _: None)
    failed(client.send(QUEUE, bytes(600)), BufferFullError)
    failed(client.send(QUEUE, b"", {"x": "y" * 600}), BufferFullError)
    client.send(QUEUE, bytes(300)).addErrback(lambda _: None)
    result(client.disconnect())


def test_who_wants_to_can_wait_for_room(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=BufferLimits(send_messages=2))
    sent = [client.send(QUEUE, b"%d" % number, wait=True) for number in range(5)]
    net.run()
    frames = endpoint.peer.take("SEND")
    assert bodies(frames) == [b"0", b"1"]
    failed(client.send(QUEUE, b"pushy"), BufferFullError)
    endpoint.peer.confirm(frames[0])
    net.run()
    assert bodies(endpoint.peer.take("SEND")) == [b"2"]
    endpoint.obliging = True
    endpoint.peer.confirm(*endpoint.peer.frames[-2:])
    net.run()
    for deferred in sent:
        result(deferred)
    assert bodies(endpoint.peer.take("SEND")) == [b"3", b"4"]


def test_who_waits_for_room_keeps_the_order(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.client(endpoint, buffers=BufferLimits(send_bytes=1_000))
    client.send(QUEUE, bytes(600))
    large = client.send(QUEUE, bytes(601), wait=True)
    small = client.send(QUEUE, b"small", wait=True)
    net.wait(client.connect())
    result(large)
    result(small)
    assert [len(body) for body in bodies(endpoint.peer.take("SEND"))] == [600, 601, 5]


def test_what_can_never_fit_is_refused_at_once(net: Network) -> None:
    client = net.client(net.scripted(), buffers=BufferLimits(send_bytes=1_000))
    failed(client.send(QUEUE, bytes(1_000), wait=True), BufferFullError)


def test_drain_waits_until_the_buffer_is_half_empty(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=BufferLimits(send_messages=4))
    result(client.drain())
    send(client, 1, 2, 3, 4)
    net.run()
    frames = endpoint.peer.take("SEND")
    drained = client.drain()
    endpoint.peer.confirm(frames[0])
    net.run()
    assert waits(drained)
    endpoint.peer.confirm(frames[1])
    net.wait(drained)


def test_drain_lets_those_go_first_who_wait_for_room(net: Network) -> None:
    client = net.client(net.scripted(obliging=True), buffers=BufferLimits(send_bytes=1_000))
    client.send(QUEUE, bytes(400))
    large = client.send(QUEUE, bytes(700), wait=True)
    drained = client.drain()
    assert waits(drained)
    net.wait(client.connect())
    result(large)
    result(drained)


def test_all_that_waits_fails_when_the_client_is_closed(net: Network) -> None:
    client = net.client(net.scripted(), buffers=BufferLimits(send_messages=1))
    waiting = [client.send(QUEUE), client.send(QUEUE, wait=True), client.drain()]
    result(client.disconnect())
    for deferred in waiting:
        failed(deferred, ClientClosedError)
    failed(client.drain(), ClientClosedError)


def test_the_buffer_is_empty_again_when_the_client_is_closed(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.client(endpoint, buffers=BufferLimits(send_messages=2))
    for _ in range(3):
        waiting = [client.send(QUEUE, wait=True) for _ in range(4)]
        client.connect().addErrback(lambda _: None)
        result(client.disconnect())
        for deferred in waiting:
            failed(deferred, ClientClosedError)
        net.wait(client.connect())
        for deferred in send(client, 1, 2):
            net.wait(deferred)
        endpoint.peer.drop()


# Cancelling.


def test_what_has_not_been_sent_can_be_taken_back(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.client(endpoint, buffers=BufferLimits(send_messages=2))
    sent = [*send(client, 1, 2), client.send(QUEUE, b"3", wait=True)]
    more = client.send(QUEUE, b"4", {"receipt": "r"}, wait=True)
    sent[0].cancel()
    more.cancel()
    failed(sent[0], CancelledError)
    failed(more, CancelledError)
    again = client.send(QUEUE, b"5", {"receipt": "r"}, wait=True)
    net.wait(client.connect())
    net.wait(again)
    assert bodies(endpoint.peer.take("SEND")) == [b"2", b"3", b"5"]


def test_what_is_taken_back_makes_room(net: Network) -> None:
    client = net.client(net.scripted(), buffers=BufferLimits(send_messages=1))
    first = client.send(QUEUE)
    first.cancel()
    failed(first, CancelledError)
    second = client.send(QUEUE)
    assert waits(second)
    second.cancel()
    failed(second, CancelledError)
    result(client.drain())


def test_what_has_been_sent_and_is_cancelled_is_not_sent_again(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    first, second = send(client, 1, 2)
    net.run()
    first.cancel()
    failed(first, CancelledError)
    endpoint.peer.drop()
    net.advance(0.1)
    frames = endpoint.peer.take("SEND")
    assert bodies(frames) == [b"2"]
    endpoint.peer.confirm(*frames)
    net.wait(second)


def test_a_receipt_that_comes_after_the_cancellation_is_harmless(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=BufferLimits(send_messages=1))
    [sent] = send(client, 1)
    net.run()
    sent.cancel()
    failed(sent, CancelledError)
    failed(client.send(QUEUE), BufferFullError)  # the frame is in flight, and counts
    endpoint.peer.confirm(endpoint.peer.take("SEND")[0])
    net.run()
    client.send(QUEUE)
    net.run()
    assert len(endpoint.peer.take("SEND")) == 1


# Back-pressure.


def test_a_full_transport_gets_no_more_messages(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, buffers=BufferLimits(send_messages=3))
    transport = endpoint.peer.transport
    transport.stop_taking()
    sent = send(client, 1, 2, 3, receipt=False)
    assert not transport.outgoing
    assert all(map(waits, sent))
    failed(client.send(QUEUE), BufferFullError)
    transport.start_taking()
    net.run()
    for deferred in sent:
        result(deferred)
    assert bodies(endpoint.peer.take("SEND")) == [b"1", b"2", b"3"]


def test_what_a_full_transport_did_not_get_is_sent_on_the_next_connection(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    send(client, 1)
    net.run()
    endpoint.peer.transport.stop_taking()
    send(client, 2)
    endpoint.peer.drop()
    send(client, 3)
    net.advance(0.1)
    assert bodies(endpoint.peer.take("SEND")) == [b"1", b"2", b"3"]
