"""MorbidQ's queues and topics."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from stompkit.frames import Frame

__all__ = ["Places", "Subscriber"]

_QUEUE: Final = "/queue/"
_FANOUT: Final = "/pubsub/"


class Subscriber(Protocol):
    """A subscriber of a destination."""

    def deliver(self, frame: Frame, destination: str) -> None:
        """Write a MESSAGE frame of a destination."""


class _Place:
    """One destination; it is never removed."""

    def __init__(self, name: str) -> None:
        """Create an empty destination."""
        self.name = name
        self.is_queue = name.startswith(_QUEUE)
        self.subscribers: deque[Subscriber] = deque()
        self._backlog: deque[Frame] = deque()
        self._deliveries = 0

    def send(self, frame: Frame) -> None:
        """Deliver a message to the next subscriber of a queue, or to all of a topic."""
        if not self.is_queue:
            for subscriber in list(self.subscribers):
                self._deliver(subscriber, frame)
        elif self.subscribers:
            subscriber = self.subscribers[0]
            self.subscribers.rotate(-1)
            self._deliver(subscriber, frame)
        else:
            self._backlog.append(frame)

    def add(self, subscriber: Subscriber) -> None:
        """Add a subscriber; the first one gets all waiting messages."""
        if subscriber not in self.subscribers:
            self.subscribers.append(subscriber)
        while self._backlog:
            self._deliver(subscriber, self._backlog.popleft())

    def _deliver(self, subscriber: Subscriber, frame: Frame) -> None:
        self._deliveries += 1
        own = {"destination": self.name, "message-id": f"{self.name}_{self._deliveries}"}
        subscriber.deliver(Frame("MESSAGE", frame.headers | own, frame.body), self.name)


class Places:
    """All destinations. ``children`` maps each fan-out destination to its children."""

    def __init__(self, children: Mapping[str, Sequence[str]]) -> None:
        """Start empty."""
        self._children = children
        self._places: dict[str, _Place] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def clear(self) -> None:
        """Remove everything."""
        self._places.clear()

    def send(self, name: str, frame: Frame) -> None:
        """Send a message to a destination, or to the children of a fan-out destination."""
        if name.startswith(_FANOUT):
            for child in self._children.get(name.removeprefix(_FANOUT), ()):
                self._place(child).send(frame)
            return
        self._place(name).send(frame)

    def subscribe(self, name: str, subscriber: Subscriber) -> None:
        """Subscribe to a destination; without effect for a fan-out destination."""
        if not name.startswith(_FANOUT):
            self._place(name).add(subscriber)

    def unsubscribe(self, name: str, subscriber: Subscriber) -> None:
        """Remove a subscription; harmless if there is none."""
        place = self._places.get(name)
        if place is not None and subscriber in place.subscribers:
            place.subscribers.remove(subscriber)

    def leave(self, subscriber: Subscriber) -> None:
        """End all subscriptions of a subscriber."""
        for name in self._places:
            self.unsubscribe(name, subscriber)

    def _place(self, name: str) -> _Place:
        return self._places.setdefault(name, _Place(name))
