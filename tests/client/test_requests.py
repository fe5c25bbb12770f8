"""Requests and replies, with a broker that follows the script of the test."""

from __future__ import annotations

import pytest
from twisted.internet.defer import CancelledError

from stompkit.client import BrokerError, BufferFullError, BufferLimits, Client, ClientClosedError
from stompkit.frames import Frame
from tests.client.logs import Log
from tests.client.network import Network, Peer, ScriptedEndpoint, failed, online, result, waits

SERVICE = "/queue/service"


def answer(peer: Peer, request: Frame, body: bytes = b"", **headers: str) -> None:
    """Send the reply to a request, as the broker forwards it."""
    own = {
        "destination": request.headers["reply-to"],
        "message-id": "m",
        "correlation-id": request.headers["correlation-id"],
    }
    peer.send("MESSAGE", own | headers, body)


def ready(net: Network, endpoint: ScriptedEndpoint) -> tuple[Client, str]:
    """Return a client that has its reply queue, and the id of the subscription."""
    endpoint.obliging = True
    client = net.connected(endpoint)
    first = client.request(SERVICE)
    net.run()
    [subscribe] = endpoint.peer.take("SUBSCRIBE")
    answer(endpoint.peer, endpoint.peer.frames[-1], subscription=subscribe.headers["id"])
    net.wait(first)
    endpoint.peer.take()
    return client, subscribe.headers["id"]


def test_the_first_request_subscribes_to_a_queue_of_the_client(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    first, second = client.request(SERVICE, b"1"), client.request(SERVICE, b"2", {"x": "y"})
    net.run()
    [subscribe] = endpoint.peer.take()[1:]
    queue = subscribe.headers["destination"]
    assert subscribe.command == "SUBSCRIBE"
    assert subscribe.headers["ack"] == "auto"
    assert queue.startswith("/temp-queue/stompkit-")
    endpoint.peer.confirm(subscribe)
    net.run()
    one, two = endpoint.peer.take()
    assert (one.body, two.body) == (b"1", b"2")
    assert one.headers["destination"] == SERVICE
    assert one.headers["reply-to"] == two.headers["reply-to"] == queue
    assert one.headers["correlation-id"] != two.headers["correlation-id"]
    assert two.headers["x"] == "y"
    answer(endpoint.peer, two, b"II", subscription=subscribe.headers["id"])
    answer(endpoint.peer, one, b"I", subscription=subscribe.headers["id"])
    assert net.wait(first).body == b"I"
    assert result(second).body == b"II"


def test_clients_have_different_queues(net: Network) -> None:
    queues = set()
    for _ in range(2):
        endpoint = net.scripted()
        net.connected(endpoint).request(SERVICE)
        net.run()
        queues.add(endpoint.peer.take("SUBSCRIBE")[0].headers["destination"])
    assert len(queues) == 2


def test_the_name_of_the_queue_can_be_chosen(net: Network) -> None:
    endpoint = net.scripted()
    net.connected(endpoint, reply_destination="/queue/mine").request(SERVICE)
    net.run()
    assert endpoint.peer.take("SUBSCRIBE")[0].headers["destination"] == "/queue/mine"


def test_a_broker_may_give_replies_another_destination(net: Network) -> None:
    client, subscription = ready(net, endpoint := net.scripted())
    reply = client.request(SERVICE)
    net.run()
    [request] = endpoint.peer.take("SEND")
    answer(endpoint.peer, request, b"r", destination="/x", subscription=subscription)
    assert net.wait(reply).body == b"r"


def test_with_rabbitmq_nobody_subscribes(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, reply_style="rabbitmq")
    reply = client.request(SERVICE)
    net.run()
    [_, request] = endpoint.peer.take()
    queue = request.headers["reply-to"]
    answer(endpoint.peer, request, b"r", destination="/reply-queue/x", subscription=queue)
    message = net.wait(reply)
    assert message.body == b"r"
    assert message.is_settled


def test_the_correlation_id_can_be_chosen(net: Network) -> None:
    client, subscription = ready(net, endpoint := net.scripted())
    reply = client.request(SERVICE, b"", {"correlation-id": "mine"})
    with pytest.raises(ValueError, match="mine"):
        client.request(SERVICE, b"", {"correlation-id": "mine"})
    net.run()
    [request] = endpoint.peer.take("SEND")
    answer(endpoint.peer, request, subscription=subscription)
    assert net.wait(reply).headers["correlation-id"] == "mine"


def test_a_request_has_a_deadline_and_a_late_reply_is_dropped(net: Network) -> None:
    client, subscription = ready(net, endpoint := net.scripted())
    reply = client.request(SERVICE, timeout_s=2.0)
    net.advance(1.9)
    assert waits(reply)
    net.advance(0.2)
    assert "2 seconds" in str(failed(reply, TimeoutError))
    answer(endpoint.peer, endpoint.peer.take("SEND")[0], subscription=subscription)
    net.run()
    assert online(client)


def test_a_reply_to_no_request_is_dropped(net: Network) -> None:
    client, subscription = ready(net, endpoint := net.scripted())
    headers = {"destination": "/x", "message-id": "m", "subscription": subscription}
    endpoint.peer.send("MESSAGE", headers)
    endpoint.peer.send("MESSAGE", headers | {"correlation-id": "what"})
    endpoint.peer.send("MESSAGE", headers | {"subscription": "what"})
    net.run()
    assert online(client)


def test_a_reply_that_is_waited_for_is_read_through_a_full_queue(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, reply_style="rabbitmq", buffers=BufferLimits(queue_messages=2))
    endpoint.obliging = True
    subscription = net.wait(client.subscribe(SERVICE, ack="auto"))
    [subscribe] = endpoint.peer.take("SUBSCRIBE")
    reply = client.request(SERVICE)
    for number in range(3):
        endpoint.peer.message(subscribe, b"", number)
        net.run()
    answer(endpoint.peer, endpoint.peer.take("SEND")[0], subscription=subscription.id + "x")
    net.wait(reply)
    assert not endpoint.peer.transport.reads()


def test_the_deadline_counts_while_there_is_no_connection(net: Network) -> None:
    endpoint = net.scripted()
    client = net.client(endpoint)
    reply = client.request(SERVICE, timeout_s=1.0)
    net.advance(1.1)
    failed(reply, TimeoutError)
    net.wait(client.connect())
    endpoint.peer.confirm(endpoint.peer.take("SUBSCRIBE")[0])
    net.run()
    assert endpoint.peer.take("SEND") == []


def test_a_request_that_was_not_confirmed_is_sent_again(net: Network) -> None:
    client, subscription = ready(net, endpoint := net.scripted())
    endpoint.obliging = False
    reply = client.request(SERVICE, b"q")
    net.run()
    endpoint.peer.drop()
    net.advance(0.1)
    _, subscribe, request = endpoint.peer.take()
    assert subscribe.headers["id"] == subscription
    assert request.body == b"q"
    answer(endpoint.peer, request, b"r", subscription=subscription)
    assert net.wait(reply).body == b"r"


def test_a_request_that_nobody_waits_for_is_not_sent_again(net: Network) -> None:
    client, _ = ready(net, endpoint := net.scripted())
    endpoint.obliging = False
    late, unwanted = client.request(SERVICE, timeout_s=1.0), client.request(SERVICE)
    net.run()
    unwanted.cancel()
    failed(unwanted, CancelledError)
    net.advance(1.1)
    failed(late, TimeoutError)
    endpoint.peer.drop()
    net.advance(0.1)
    assert endpoint.peer.take("SEND") == []


def test_a_refused_request_fails_at_once(net: Network) -> None:
    client, _ = ready(net, endpoint := net.scripted())
    endpoint.obliging = False
    reply = client.request(SERVICE)
    net.run()
    endpoint.peer.refuse(endpoint.peer.take("SEND")[0], "no such service")
    net.run()
    assert failed(reply, BrokerError).message == "no such service"


def test_a_refused_queue_fails_the_request_and_the_next_one_tries_again(
    net: Network, log: Log
) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint)
    reply = client.request(SERVICE)
    net.run()
    endpoint.peer.refuse(endpoint.peer.take("SUBSCRIBE")[0], "no temporary queues")
    net.advance(0.1)
    assert failed(reply, BrokerError).message == "no temporary queues"
    client.request(SERVICE)
    net.run()
    assert len(endpoint.peer.take("SUBSCRIBE")) == 1
    log.take_errors()


def test_a_request_needs_room_in_the_buffer(net: Network) -> None:
    endpoint = net.scripted()
    client = net.connected(endpoint, reply_style="rabbitmq", buffers=BufferLimits(send_messages=1))
    client.send(SERVICE)
    failed(client.request(SERVICE), BufferFullError)


def test_requests_end_with_the_client(net: Network) -> None:
    client, _ = ready(net, net.scripted())
    reply = client.request(SERVICE)
    net.wait(client.disconnect())
    failed(reply, ClientClosedError)
    failed(client.request(SERVICE), ClientClosedError)
    assert net.clock.getDelayedCalls() == []


def test_a_reply_goes_where_the_request_wants_it(net: Network) -> None:
    endpoint = net.scripted(obliging=True)
    client = net.connected(endpoint)
    subscription = net.wait(client.subscribe(SERVICE))
    [subscribe] = endpoint.peer.take("SUBSCRIBE")
    headers = {"reply-to": "/temp-queue/x", "correlation-id": "7"}
    endpoint.peer.message(subscribe, b"q", 1, **headers)
    endpoint.peer.message(subscribe, b"q", 2, **{"reply-to": "/temp-queue/y"})
    endpoint.peer.message(subscribe, b"q", 3)
    net.run()
    first, second, third = (result(subscription.get()) for _ in range(3))
    net.wait(client.reply(first, b"r", {"x": "y"}))
    net.wait(client.reply(second, receipt=False))
    one, two = endpoint.peer.take("SEND")
    assert one.body == b"r"
    assert one.headers["destination"] == "/temp-queue/x"
    assert one.headers["correlation-id"] == "7"
    assert one.headers["x"] == "y"
    assert two.headers == {"destination": "/temp-queue/y"}
    with pytest.raises(ValueError, match="reply-to"):
        client.reply(third)
