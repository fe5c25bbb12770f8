"""Helpers for tests of kombu's consumers."""

from __future__ import annotations

import socket
from contextlib import suppress
from time import monotonic
from typing import Any

from kombu.connection import Connection
from kombu.entity import Queue
from kombu.message import Message
from kombu.messaging import Consumer

__all__ = ["LONG_S", "Reader"]

#: Time in seconds that a test waits for an expected message.
LONG_S = 60.0
#: Time in seconds that a test waits for an unexpected message; a longer time finds more.
_SHORT_S = 0.5


class Reader:
    """A consumer that keeps the messages it receives."""

    def __init__(
        self, connection: Connection, *queues: Queue, prefetch: int = 0, no_ack: bool = False
    ) -> None:
        """Begin to consume."""
        self.connection = connection
        self.channel: Any = connection.channel()
        if prefetch:
            self.channel.basic_qos(0, prefetch, False)
        self.messages: list[Message] = []
        self.consumer = Consumer(
            self.channel,
            [queue(self.channel) for queue in queues],
            no_ack=no_ack,
            on_message=self.messages.append,
            accept=None,
        )
        self.consumer.consume()

    @property
    def bodies(self) -> list[Any]:
        """The decoded bodies, in the order of arrival."""
        return [message.decode() for message in self.messages]

    def wait(self, count: int) -> list[Message]:
        """Wait until *count* messages have arrived, and return all."""
        until = monotonic() + LONG_S
        while len(self.messages) < count:
            assert monotonic() < until, f"{len(self.messages)} of {count} messages"
            with suppress(socket.timeout):
                self.connection.drain_events(timeout=1.0)
        return self.messages

    def gets_nothing_more(self) -> bool:
        """Return True if no message arrives for a while."""
        before = len(self.messages)
        with suppress(socket.timeout):
            self.connection.drain_events(timeout=_SHORT_S)
        return len(self.messages) == before
