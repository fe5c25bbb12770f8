"""Destinations: topics deliver to all subscribers; all others are queues."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from tests.conformance.second_server.frames import Headers, Pairs
from tests.conformance.second_server.switches import Switch


class Receiver(Protocol):
    """The part of a session that destinations need."""

    subscriptions: dict[bytes, Subscription]

    @property
    def version(self) -> bytes:
        """The version of the protocol."""

    def say(self, command: bytes, headers: Pairs, body: bytes = b"") -> None:
        """Send a frame."""


@dataclass
class Message:
    """A message sent to a destination."""

    destination: bytes
    headers: Headers
    body: bytes


@dataclass(eq=False)
class Subscription:
    """A subscription, with its unacknowledged messages by message-id."""

    session: Receiver
    id: bytes
    destination: bytes
    mode: bytes
    pending: dict[bytes, Message] = field(default_factory=dict)


class Destinations:
    """All destinations, with the sessions that use them."""

    def __init__(self, switch: Switch) -> None:
        """Start without messages."""
        self.has = switch.has
        self.sessions: set[Receiver] = set()
        #: Unique names for messages and sessions.
        self.names = (b"n%d" % number for number in itertools.count(1))
        #: Names of transactions in all sessions, for one of the switches.
        self.transactions: set[bytes] = set()
        self._numbers: dict[bytes, itertools.count[int]] = {}
        self._queues: dict[bytes, deque[Message]] = {}
        self._subscribers: dict[bytes, deque[Subscription]] = {}

    def publish(self, message: Message) -> None:
        """Deliver a message, or put it into a queue."""
        if message.destination.startswith(b"/topic/"):
            served: list[Receiver] = []
            for subscription in self._subscribers.get(message.destination, ()):
                is_one = self.has("delivers to one subscription of a connection")
                if not is_one or subscription.session not in served:
                    self._deliver(subscription, message)
                served.append(subscription.session)
            if not served and self.has("keeps messages of topics for later subscribers"):
                self._queues.setdefault(message.destination, deque()).append(message)
            return
        self._queues.setdefault(message.destination, deque()).append(message)
        self._feed(message.destination)

    def add(self, subscription: Subscription) -> None:
        """Add a subscription, and start delivery."""
        self._subscribers.setdefault(subscription.destination, deque()).append(subscription)
        waiting = self._queues.get(subscription.destination)
        if waiting and self.has("delivers at most a hundred waiting messages"):
            while len(waiting) > 100:
                waiting.pop()
        self._feed(subscription.destination)

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription, and requeue its unacknowledged messages in order."""
        here = subscription.destination
        self._subscribers[here].remove(subscription)
        if not here.startswith(b"/topic/"):
            back = list(subscription.pending.values())
            if self.has("redelivers without user headers"):
                back = [Message(each.destination, {}, each.body) for each in back]
            if self.has("gives messages back in reverse order"):
                back.reverse()
            self._queues.setdefault(here, deque()).extendleft(reversed(back))
            self._feed(here)

    def _feed(self, destination: bytes) -> None:
        """Deliver queued messages to the subscribers in turn."""
        waiting, subscribers = self._queues.get(destination), self._subscribers.get(destination)
        while waiting and subscribers:
            subscribers.rotate(-1)
            self._deliver(subscribers[-1], waiting.popleft())

    def _deliver(self, to: Subscription, message: Message) -> None:
        """Send one message to one subscription."""
        id = next(self.names)
        if self.has("numbers messages by destination"):
            id = b"m%d" % next(self._numbers.setdefault(message.destination, itertools.count(1)))
        if to.mode != b"auto":
            to.pending[id] = message
        own = {b"destination": message.destination, b"message-id": id, b"subscription": to.id}
        if to.session.version == b"1.2" and to.mode != b"auto":
            is_other = self.has("names the ack id of MESSAGE id")
            own[b"id" if is_other else b"ack"] = id
        length = len(message.body)
        if self.has("counts characters"):
            length = len(message.body.decode("utf-8", "replace"))
        own[b"content-length"] = b"%d" % length
        to.session.say(b"MESSAGE", list({**own, **message.headers}.items()), message.body)
