"""Record the observations of clients, and number all of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from stompkit.frames import Frame
from tests.campaign.history import (
    Asked,
    Began,
    Closed,
    Delivered,
    Done,
    Drained,
    Ended,
    Ending,
    Event,
    Note,
    Opened,
    Refused,
    Setting,
    Staged,
)

__all__ = ["Recorder", "body_of", "message_of"]

#: One body in this many is long.
_LONG_EVERY = 61
_LONG_BYTES = 6_000


def body_of(message: int) -> bytes:
    """Return the body of a message, unique for each number."""
    size = _LONG_BYTES if message % _LONG_EVERY == 0 else message * 7_919 % 173
    return b"%d:" % message + bytes([(message * 31 + 7) % 256]) * size


def message_of(body: bytes) -> int:
    """Return the number of the message with this body; -1 for none."""
    number, _, _ = body.partition(b":")
    message = int(number) if number.isdigit() else -1
    return message if message >= 0 and body == body_of(message) else -1


class Recorder:
    """A history in progress."""

    def __init__(self, setting: Setting) -> None:
        """Start empty."""
        self.events: list[Event] = [setting]
        self.life = 0
        #: Number of messages with a receipt, and of refused operations.
        self.receipted = 0
        self.refused = 0
        self._last: Counter[str] = Counter()
        self._begun = time.monotonic()
        self._sizes: dict[int, int] = {}

    def _next(self, kind: str) -> int:
        self._last[kind] += 1
        return self._last[kind]

    def new_message(self) -> int:
        """Return a number that no other message has."""
        return self._next("message")

    def began(self) -> None:
        """Record that a broker answers."""
        self.life += 1
        self.events.append(Began(self.life))

    def ended(self, how: Ending) -> None:
        """Record that a broker's life has ended."""
        self.events.append(Ended(self.life, how))

    def opened(self, client: str, life: int, auto: str) -> int:
        """Record that a client has connected; return the connection's number."""
        number = self._next("connection")
        self.events.append(Opened(number, client, life, auto))
        return number

    def closed(self, connection: int, *, is_clean: bool) -> None:
        """Record that a connection has ended."""
        self.events.append(Closed(connection, is_clean))

    def staged(self, connection: int, messages: Sequence[int]) -> None:
        """Record a message that was sent in a transaction."""
        self.events.append(Staged(connection, tuple(messages)))

    def asked(
        self,
        connection: int,
        *,
        sends: Sequence[tuple[int, str]] = (),
        settles: Sequence[int] = (),
        rejects: Sequence[int] = (),
        durable: str = "",
        is_transaction: bool = False,
    ) -> int:
        """Record an operation; return its number."""
        number = self._next("operation")
        self._sizes[number] = len(sends)
        self.events.append(
            Asked(
                number,
                connection,
                tuple(sends),
                tuple(settles),
                tuple(rejects),
                durable,
                is_transaction,
            )
        )
        return number

    def done(self, operation: int) -> None:
        """Record a receipt."""
        self.receipted += self._sizes.pop(operation)
        self.events.append(Done(operation))

    def was_refused(self, operation: int, code: str) -> None:
        """Record an ERROR."""
        self.refused += 1
        self.events.append(Refused(operation, code))

    def delivered(self, connection: int, place: str, frame: Frame, *, is_auto: bool) -> int:
        """Record a delivery to a client; return its number."""
        number = self._next("delivery")
        message, is_redelivered, count = _read(frame)
        self.events.append(
            Delivered(number, connection, place, message, is_redelivered, count, is_auto)
        )
        return number

    def drained(self, place: str, frame: Frame) -> None:
        """Record a message that was drained at the end."""
        self.events.append(Drained(place, *_read(frame)))

    def note(self, text: str) -> None:
        """Record a remark."""
        passed_s = time.monotonic() - self._begun
        self.events.append(Note(f"{passed_s:.2f} s, {self.receipted} receipted: {text}"))


def _read(frame: Frame) -> tuple[int, bool, int]:
    """Return the message number, the redelivered mark and the delivery count."""
    headers = frame.headers
    is_redelivered = headers.get("redelivered") == "true"
    return message_of(frame.body), is_redelivered, int(headers.get("delivery-count", 1))
