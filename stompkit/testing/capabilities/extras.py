"""Probes for capabilities beyond STOMP: topics, selectors, expiry, delay and others.

Most of these features use headers that differ between brokers. If there are several spellings, the
probe tries them in order, and the finding names the one that worked.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

from stompkit.testing.capabilities.probe_context import Finding, ProbeContext
from stompkit.testing.client import ClientFailureError, StompClient

__all__ = [
    "browser",
    "delay",
    "durable",
    "expiry",
    "priority",
    "selector",
    "temporary",
    "topic",
    "wildcard",
]

#: Times in seconds for which a message is left alone, one per attempt: a busy broker may remove
#: expired messages late.
_EXPIRY_S: Final = (0.02, 0.2, 1.0)
_DELAY_MS: Final = 300
#: Maximum time in seconds by which a delayed message may be late: schedulers work by the second.
_DELAY_MARGIN_S: Final = 5.0


def topic(context: ProbeContext) -> Finding:
    """Return whether a message to a topic is delivered to all of its subscribers."""
    name, first, second = context.topic(), context.client(), context.client()
    context.subscribe(first, name)
    context.subscribe(second, name)
    context.take(second, name, b"1")
    # The second client has subscribed by now. The first may have missed that message.
    context.put(first, name, b"2")
    for client in (first, second):
        message = None
        while message is None or message.body != b"2":
            message = context.late(client.receive)
            if message is None:
                return Finding(False, "of two subscribers of a topic one did not get a message")
    return Finding(True, "a message to a topic came to both of its subscribers")


def wildcard(context: ProbeContext) -> Finding:
    """Return whether ``*`` matches one level of a topic's name."""
    client, name, other = context.client(), context.name(), context.topic()
    context.subscribe(client, context.topic(f"{name}.*"))
    context.subscribe(client, other)
    context.put(client, context.topic(f"{name}.a"), b"1")
    # Messages of different topics may be reordered.
    if context.take(client, other, b"2").body != b"1" and context.late(client.receive) is None:
        return Finding(False, "a subscription of a topic NAME.* got no message to NAME.a")
    return Finding(True, "a subscription of a topic NAME.* got a message to NAME.a")


def durable(context: ProbeContext) -> Finding:
    """Return whether a topic subscription stores messages while its subscriber is disconnected."""
    for spelling, connecting, subscribing in (
        ("client-id and activemq.subscriptionName", ["client-id"], ["activemq.subscriptionName"]),
        ("client-id and durable-subscription-name", ["client-id"], ["durable-subscription-name"]),
        ("durable:true, auto-delete:false and id", [], ["durable:true", "auto-delete:false"]),
    ):
        try:
            if _Durable(context, connecting, subscribing).collects():
                return Finding(True, f"a subscription by {spelling} got what came meanwhile")
        except ClientFailureError:
            continue
    return Finding(False, "no subscription got a message that came while its subscriber was away")


class _Durable:
    """A subscription that may turn out to be durable."""

    def __init__(
        self, context: ProbeContext, connecting: list[str], subscribing: list[str]
    ) -> None:
        """Store headers of CONNECT and SUBSCRIBE; those without a value get a unique name."""
        self._context = context
        self._name = context.name()
        self._topic = context.topic()
        self._connecting = self._headers(connecting)
        self._subscribing = self._headers(subscribing)

    def _headers(self, texts: list[str]) -> dict[str, str]:
        pairs = [text.partition(":") for text in texts]
        return {name: value or self._name for name, _, value in pairs}

    def collects(self) -> bool:
        """Subscribe, disconnect and reconnect; return True if a message was stored meanwhile."""
        context, topic = self._context, self._topic
        client = context.client(headers=self._connecting)
        self._subscribe(client)
        client.ack(context.take(client, topic, b"1"))
        client.disconnect()
        client = context.client(headers=self._connecting)
        # It has not yet subscribed again.
        context.put(client, topic, b"2", persistent="true")
        self._subscribe(client)
        message = context.take(client, topic, b"3")
        client.ack(message)
        has_collected = message.body == b"2"
        if has_collected:
            client.ack(client.receive())
            self._forget(client)
        return has_collected

    def _subscribe(self, client: StompClient) -> None:
        client.subscribe(
            self._topic, id=self._name, ack="client", receipt=False, headers=self._subscribing
        )

    def _forget(self, client: StompClient) -> None:
        """Delete the subscription on the broker, in one of the two known ways."""
        headers = {"destination": self._topic, **self._subscribing}
        with suppress(ClientFailureError):
            client.unsubscribe(self._name, headers=headers)
            return
        # Some brokers require an inactive subscription, and may have closed the connection.
        with suppress(ClientFailureError):
            client.disconnect()
        with suppress(ClientFailureError):
            client = self._context.client(headers=self._connecting)
            client.unsubscribe(self._name, headers=headers)


def temporary(context: ProbeContext) -> Finding:
    """Return whether the broker has temporary reply queues that belong to a connection."""
    try:
        how, address = "with", _replied(context, subscribes=True)
    except ClientFailureError:
        how, address = "without", _replied(context, subscribes=False)
    if address is None:
        return Finding(False, "a reply-to:/temp-queue/NAME came as it was sent: it is nobody's own")
    return Finding(
        True, f"a reply came to the sender of reply-to:/temp-queue/NAME, {how} a subscription of it"
    )


def _replied(context: ProbeContext, *, subscribes: bool) -> str | None:
    """Send a request, receive the reply to it and return the reply's destination.

    Return ``None`` if it is the name from the request, which means the same on every connection.
    """
    client, service = context.client(), context.client()
    queue, own = context.queue(), f"/temp-queue/{context.name()}"
    if subscribes:
        client.subscribe(own, receipt=False)
    context.put(client, queue, b"request", **{"reply-to": own})
    context.subscribe(service, queue)
    address = service.receive().headers.get("reply-to")
    if address is None or address == own:
        return None
    service.send(address, b"reply", receipt=False)
    client.receive()
    return address


def selector(context: ProbeContext) -> Finding:
    """Return whether a subscription receives only the messages that its selector matches."""
    client, queue = context.client(), context.queue()
    context.subscribe(client, queue, selector="colour = 'red'")
    context.put(client, queue, b"blue", colour="blue")
    context.put(client, queue, b"red", colour="red")
    if client.receive().body == b"blue":
        return Finding(False, "a subscription got a message that its selector rules out")
    client.close()
    context.rest_of(queue)
    return Finding(True, "a subscription got only the message that its selector takes")


def browser(context: ProbeContext) -> Finding:
    """Return whether a queue can be browsed without consuming its messages."""
    client, queue = context.client(), context.queue()
    context.put(client, queue, b"1")
    context.subscribe(client, queue, browser="true")
    while client.receive().body != b"1":
        pass
    client.close()
    if context.rest_of(queue):
        return Finding(True, "a subscription with browser:true left the message in its queue")
    return Finding(False, "a subscription with browser:true took the message from its queue")


def expiry(context: ProbeContext) -> Finding:
    """Return whether an expired message is not delivered."""
    # One second after the epoch; one millisecond after it was sent.
    for header, value in (("expires", "1000"), ("expiration", "1")):
        for pause_s in _EXPIRY_S:
            client, queue = context.client(), context.queue()
            context.put(client, queue, b"1", **{header: value})
            time.sleep(pause_s)
            if not context.rest_of(queue, client=client):
                return Finding(True, f"a message with the header {header} was gone after its time")
    return Finding(False, "a message came after its time, be it given by expires or by expiration")


def delay(context: ProbeContext) -> Finding:
    """Return whether the delivery of a message can be delayed."""
    client, queue = context.client(), context.queue()
    context.subscribe(client, queue)
    context.put(client, queue, b"1", AMQ_SCHEDULED_DELAY=str(_DELAY_MS))
    if context.take(client, queue, b"2").body == b"1":
        return Finding(False, "a message with AMQ_SCHEDULED_DELAY came at once")
    client.receive(_DELAY_MS / 1000 + _DELAY_MARGIN_S)
    return Finding(True, "a message with AMQ_SCHEDULED_DELAY came later than one sent after it")


def priority(context: ProbeContext) -> Finding:
    """Return whether a message with a higher priority is delivered first."""
    for spelling, arguments in (
        ("priority", {}),
        ("priority and, of its queue, x-max-priority", {"x-max-priority": "9"}),
    ):
        client, queue = context.client(), context.queue()
        context.put(client, queue, b"low", priority="1", **arguments)
        context.put(client, queue, b"high", priority="9", **arguments)
        context.subscribe(client, queue, **arguments)
        if client.receive().body == b"high":
            return Finding(True, f"the later of two messages came first by {spelling}")
    return Finding(False, "two messages came in the order in which they were sent")
