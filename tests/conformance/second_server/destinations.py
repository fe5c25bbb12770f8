"""Destinations: topics deliver to all subscribers; all others are queues."""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from tests.conformance.second_server.frames import Headers, Pairs
from tests.conformance.second_server.switches import Switch

#: Number of messages that one of the switches writes at once, and the pause in seconds after them.
_AT_ONCE: Final = 20
_PAUSE_S: Final = 0.002


class Receiver(Protocol):
    """The part of a session that destinations need."""

    subscriptions: dict[bytes, Subscription]
    later: Callable[[float, Callable[[], object]], None]

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

    def publish(self, message: Message, sender: Receiver) -> None:
        """Deliver a message, or put it into a queue."""
        if message.destination.startswith(b"/topic/"):
            self._publish_to_topic(message, sender)
            return
        if not self._subscribers.get(message.destination):
            message = self._changed_to_wait(message)
        self._queues.setdefault(message.destination, deque()).append(message)
        self.feed(message.destination)

    def _publish_to_topic(self, message: Message, sender: Receiver) -> None:
        """Deliver a message to all subscribers."""
        if self.has("drops user headers of topics"):
            message = replace(message, headers={})
        if self.has("changes CR LF in bodies of topics"):
            message = replace(message, body=message.body.replace(b"\r\n", b"\n"))
        served: list[Receiver] = []
        for subscription in self._subscribers.get(message.destination, ()):
            to = subscription.session
            is_served = to in served and self.has("delivers to one subscription of a connection")
            is_own = to is sender and self.has("keeps messages to topics from their sender")
            if not is_served and not is_own:
                self._deliver(subscription, message)
            served.append(to)
        if not served and self.has("keeps messages of topics for later subscribers"):
            self._queues.setdefault(message.destination, deque()).append(message)

    def _changed_to_wait(self, message: Message) -> Message:
        """Return a message that waits in a queue as some switches change it."""
        if self.has("damages bodies that wait"):
            return replace(message, body=message.body.decode("utf-8", "replace").encode())
        if self.has("lowers header names of messages that wait"):
            return replace(message, headers={n.lower(): v for n, v in message.headers.items()})
        if self.has("damages headers that wait"):
            kept = {n: re.sub(rb"[^\x00-\x7f]", b"?", v) for n, v in message.headers.items()}
            return replace(message, headers=kept)
        if self.has("cuts bodies that wait at 64 KiB"):
            return replace(message, body=message.body[:65_536])
        if self.has("cuts bodies that wait at the first NUL"):
            return replace(message, body=message.body.partition(b"\0")[0])
        return message

    def add(self, subscription: Subscription) -> None:
        """Add a subscription, and start delivery."""
        self._subscribers.setdefault(subscription.destination, deque()).append(subscription)
        waiting = self._queues.get(subscription.destination)
        if waiting and self.has("delivers at most a hundred waiting messages"):
            while len(waiting) > 100:
                waiting.pop()
        if waiting and self.has("delivers all that waits in spite of UNSUBSCRIBE"):
            self._deliver_slowly(subscription, deque(waiting))
            waiting.clear()
        self.feed(subscription.destination)

    def _deliver_slowly(self, to: Subscription, waiting: deque[Message]) -> None:
        """Deliver some messages now, and the others later, for one of the switches."""
        for _ in range(min(_AT_ONCE, len(waiting))):
            self._deliver(to, waiting.popleft())
        if waiting:
            to.session.later(_PAUSE_S, lambda: self._deliver_slowly(to, waiting))

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription, and requeue its unacknowledged messages in order."""
        here = subscription.destination
        self._subscribers[here].remove(subscription)
        if not here.startswith(b"/topic/"):
            back = list(subscription.pending.values())
            if self.has("redelivers nothing") and subscription.session.version != b"1.0":
                back = []
            self.give_back(subscription, back)
        self.feed_session(subscription.session)

    def feed_session(self, session: Receiver) -> None:
        """Deliver to all subscriptions of a session, of which one has become free."""
        if self.has("delivers one unacknowledged message to a connection"):
            for each in list(session.subscriptions.values()):
                self.feed(each.destination)

    def give_back(self, subscription: Subscription, back: list[Message]) -> None:
        """Requeue messages of a subscription in order."""
        here = subscription.destination
        if self.has("redelivers without user headers"):
            back = [replace(each, headers={}) for each in back]
        if self.has("redelivers bodies as text"):
            back = [replace(e, body=e.body.decode("utf-8", "replace").encode()) for e in back]
        if self.has("gives messages back in reverse order"):
            back.reverse()
        self._queues.setdefault(here, deque()).extendleft(reversed(back))
        self.feed(here)

    def feed(self, destination: bytes) -> None:
        """Deliver queued messages to the subscribers in turn."""
        waiting, subscribers = self._queues.get(destination), self._subscribers.get(destination)
        while waiting and subscribers and (to := self._next(subscribers)):
            self._deliver(to, waiting.popleft())
        if waiting and not subscribers and self.has("keeps no messages for later subscribers"):
            waiting.clear()

    def is_consumed_elsewhere(self, destination: bytes, session: Receiver) -> bool:
        """Return True if another session subscribes to a queue."""
        others = (each.session is not session for each in self._subscribers.get(destination, ()))
        return any(others) and not destination.startswith(b"/topic/")

    def _next(self, subscribers: deque[Subscription]) -> Subscription | None:
        """Return the next subscriber that can get a message, and put it last."""
        for _ in range(len(subscribers)):
            subscribers.rotate(-1)
            if not self._is_full(subscribers[-1]):
                return subscribers[-1]
        return None

    def _is_full(self, to: Subscription) -> bool:
        """Return True if a subscription has to acknowledge a message before it gets another."""
        if self.has("delivers one unacknowledged message at a time"):
            return bool(to.pending)
        if self.has("delivers one unacknowledged message to a connection") and to.mode != b"auto":
            return any(each.pending for each in to.session.subscriptions.values())
        return False

    def _ack_value(self, to: Subscription, id: bytes) -> bytes:
        """Return the value by which a message is acknowledged."""
        if to.session.version != b"1.2" or not self.has("uses ack values again"):
            return id
        used = {key for each in to.session.subscriptions.values() for key in each.pending}
        values = (b"a%d" % number for number in itertools.count(1))
        return next(value for value in values if value not in used)

    def _deliver(self, to: Subscription, message: Message) -> None:
        """Send one message to one subscription."""
        id = next(self.names)
        if self.has("uses unusual message ids"):
            id = b"%b:\\ 1" % id
        if self.has("numbers messages by destination"):
            id = b"m%d" % next(self._numbers.setdefault(message.destination, itertools.count(1)))
        if to.mode != b"auto":
            ack = self._ack_value(to, id)
            to.pending[ack] = message
        own = {b"destination": message.destination, b"message-id": id, b"subscription": to.id}
        is_left_out = message.destination.startswith(b"/topic/") and self.has(
            "leaves ack out of messages of topics"
        )
        if to.session.version == b"1.2" and to.mode != b"auto" and not is_left_out:
            is_other = self.has("names the ack id of MESSAGE id")
            own[b"id" if is_other else b"ack"] = ack
        length = len(message.body)
        if self.has("counts characters"):
            length = len(message.body.decode("utf-8", "replace"))
        own[b"content-length"] = b"%d" % length
        headers = list({**own, **message.headers}.items())
        if self.has("adds headers of its own"):
            headers += [(b"timestamp", b"1700000000000"), (b"redelivered", b"false")]
        if self.has("repeats headers of MESSAGE") and to.session.version != b"1.0":
            headers += [(name, b"earlier") for name, _ in headers]
        to.session.say(b"MESSAGE", headers, message.body)
