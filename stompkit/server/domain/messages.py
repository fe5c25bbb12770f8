"""A message, and its encoding for each version of the protocol."""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import Final

from stompkit.frames import Frame, Version, parse_number, unescape
from stompkit.server.domain.header_lines import header_line, is_same_on_1_0
from stompkit.server.domain.names import DEAD_LETTERS
from stompkit.server.domain.session.headers import as_number
from stompkit.server.interfaces import StoredMessage

__all__ = ["CLAIM", "RECORD", "Message", "requests_repetition"]

#: Headers in which the broker records the history of a dead letter; no client can send them.
RECORD: Final = frozenset(
    f"stompkit-dead-letter-{each}"
    for each in (
        "source",
        "destination",
        "reason",
        "deliveries",
        "time",
        "expires",
        "headers",
        "claim",
    )
)
#: Marks a message in a dead-letter queue whose sender, not the broker, set the header
#: :data:`_REASON`.
CLAIM: Final = "stompkit-dead-letter-claim"
_REASON: Final = "dead-letter-reason"

#: Headers of SEND that only the broker reads, and those that only the broker may set.
_NOT_PASSED_ON: Final = RECORD | {
    "receipt",
    "transaction",
    "message-id",
    "subscription",
    "ack",
    "redelivered",
    "delivery-count",
}
#: Header whose value ``end`` marks the end of browsing, which only the broker may send.
_BROWSER: Final = "browser"
#: Headers of SEND of which the value determines what is passed on.
_DEPENDENT: Final = frozenset({_REASON, _BROWSER})

#: Headers of SEND that control the due time, the expiry and the priority of a message.
_OF_TIME_AND_RANK: Final = frozenset(
    {
        "expires",
        "expiration",
        "delay",
        "AMQ_SCHEDULED_DELAY",
        "AMQ_SCHEDULED_TIME",
        "priority",
        "JMSXGroupID",
    }
)
#: Headers of ActiveMQ that request repeated deliveries.
_REPETITIONS: Final = frozenset(f"AMQ_SCHEDULED_{each}" for each in ("PERIOD", "REPEAT", "CRON"))
_USUAL_PRIORITY: Final = 4
_HIGHEST_PRIORITY: Final = 9
_MOST_DIGITS: Final = 15


class _Known:
    """Cached result for a head, reused for messages whose frames match it.

    Many senders repeat their headers; the decoder marks such frames with the same model.
    """

    __slots__ = ("headers", "lines", "model", "octets")

    def __init__(self) -> None:
        """Start without a match."""
        self.model = b""
        self.headers: dict[str, str] = {}
        self.lines = b""
        self.octets = 0


_last: Final = _Known()


class _Plan:
    """Actions that the header names of a SEND frame require."""

    __slots__ = ("dropped", "is_repeated", "is_special", "kept", "timed")

    def __init__(self, names: Collection[str]) -> None:
        """Look at the names once; most connections repeat them in each frame."""
        #: Names of headers that are not passed on.
        self.dropped = _NOT_PASSED_ON.intersection(names)
        #: Number of the others.
        self.kept = len(names) - len(self.dropped)
        #: Names of headers that control time, priority or group.
        self.timed = _OF_TIME_AND_RANK.intersection(names)
        #: True if there are headers that request repeated deliveries.
        self.is_repeated = not _REPETITIONS.isdisjoint(names)
        #: True if what is passed on depends on values, too.
        self.is_special = not _DEPENDENT.isdisjoint(names)


def _plan(frame: Frame) -> _Plan:
    """Return the plan for the names of a frame, which frames of one shape share."""
    shape = frame.shape
    if shape is None:
        return _Plan(frame.headers)
    plan = shape.note
    if not isinstance(plan, _Plan):
        plan = shape.note = _Plan(shape.places)
    return plan


def requests_repetition(frame: Frame) -> bool:
    """Return True if a SEND frame has headers that request repeated deliveries."""
    if frame.model is _last.model:
        return False  # such a head is not cached
    if frame.shape is None:
        return not _REPETITIONS.isdisjoint(frame.headers)
    return _plan(frame).is_repeated


class Message:
    """An immutable message: headers and body as sent to a destination.

    ``headers`` holds the headers passed on to subscribers. The headers that the broker adds to each
    MESSAGE (``subscription``, ``message-id``, ``ack``, ...) are not among them. ``expires`` and
    ``due`` are seconds since the epoch, 0 for none.
    """

    __slots__ = (
        "_headers",
        "_is_plain",
        "_is_shared",
        "_lines",
        "_tail",
        "_tail_version",
        "body",
        "destination",
        "due",
        "expires",
        "group",
        "id",
        "priority",
        "size",
    )

    def __init__(
        self,
        message_id: str,
        destination: str,
        headers: dict[str, str] | None,
        lines: bytes | None,
        body: bytes,
        size: int,
    ) -> None:
        """Create a message from its headers, from their header lines for 1.2, or from both.

        ``size`` is the number of bytes that count against the limits of a queue.
        """
        self.id = message_id
        self.destination = destination
        self.body = body
        self.size = size
        self.expires = 0.0
        self.due = 0.0
        self.priority = _USUAL_PRIORITY
        #: Messages of one group go to one consumer; empty for none.
        self.group = ""
        self._headers = headers
        self._lines = lines
        #: The tail built last, its version, and whether 1.1 and 1.2 share it, or even all.
        self._tail: bytes | None = None
        self._tail_version: Version = "1.2"
        self._is_plain = self._is_shared = False

    @staticmethod
    def from_send(
        frame: Frame, destination: str, message_id: str, version: Version, now: float
    ) -> Message:
        """Create a message from a SEND frame that arrived on a session of ``version``.

        ``destination`` is the broker's name of the destination; the header has the sender's name
        for it. Raises :class:`RefusedError` for a header that should be a number and is not.
        """
        known = _last
        body = frame.body
        if frame.model is known.model and version != "1.0":
            size = known.octets + len(body)
            message = Message(message_id, destination, known.headers, known.lines, body, size)
            message._is_plain = True
            return message
        plan = _plan(frame)
        if frame.is_exact and not plan.is_special:
            message = Message._spliced(frame, plan, destination, message_id)
        else:
            message = Message._rebuilt(frame, destination, message_id)
        if plan.timed:
            message._read_time_and_rank(frame, plan.timed, now)
        elif frame.model is not None and message._is_plain and not plan.is_repeated:
            declared = frame.get("content-length")
            if declared is not None:
                known.model = frame.model
                known.headers, known.lines = message.headers, message.lines
                known.octets = message.size - len(body)
        return message

    @staticmethod
    def _spliced(frame: Frame, plan: _Plan, destination: str, message_id: str) -> Message:
        """Create a message from the header lines that arrived."""
        body, count = frame.body, plan.kept
        lines = frame.header_lines(plan.dropped)
        if body and frame.get("content-length") is None:
            lines += b"content-length:%d\n" % len(body)
            count += 1
        if frame.is_plain and lines.isascii():
            # Each line has a colon and a line feed.
            size = len(lines) - 2 * count + len(body)
            message = Message(message_id, destination, None, lines, body, size)
            message._is_plain = True
            return message
        headers = _passed_on(frame)
        _add_length(headers, body)
        size = _octets(headers) + len(body)
        message = Message(message_id, destination, headers, lines, body, size)
        message._is_plain = frame.is_plain
        return message

    @staticmethod
    def _rebuilt(frame: Frame, destination: str, message_id: str) -> Message:
        """Create a message from headers, whose lines are encoded when they are needed."""
        headers, body = _passed_on(frame), frame.body
        if _REASON in headers and destination.startswith(DEAD_LETTERS):
            headers[CLAIM] = "sender"
        _add_length(headers, body)
        return Message(message_id, destination, headers, None, body, _octets(headers) + len(body))

    @staticmethod
    def from_store(stored: StoredMessage) -> Message:
        """Create a message from the store."""
        headers = _parsed(stored.lines)
        name, lines = headers["destination"], stored.lines
        message = Message(stored.id, name, headers, lines, stored.body, stored.size)
        message.expires = stored.expires_ms / 1000
        message.due = stored.due_ms / 1000
        message._read_rank(headers)
        return message

    def copy(self) -> Message:
        """Return the same message, whose expiry and delay can be set independently."""
        copy = Message(self.id, self.destination, self._headers, self._lines, self.body, self.size)
        copy.expires, copy.due, copy.priority = self.expires, self.due, self.priority
        copy.group, copy._is_plain = self.group, self._is_plain
        return copy

    def end_delay(self, now: float) -> None:
        """Remove a delay that has passed.

        What is then delayed stays so: it is counted, checked and stored as such.
        """
        if self.due <= now:
            self.due = 0.0

    def with_headers(self, headers: dict[str, str]) -> Message:
        """Return a copy with other headers, and with neither an expiry nor a delay."""
        name, size = headers["destination"], _octets(headers) + len(self.body)
        copy = Message(self.id, name, headers, None, self.body, size)
        copy._read_rank(headers)
        return copy

    def _read_time_and_rank(self, frame: Frame, names: Container[str], now: float) -> None:
        """Read the headers of which the names are given."""
        if "expires" in names:
            self.expires = _seconds(frame, "expires")
        elif "expiration" in names:
            self.expires = now + _seconds(frame, "expiration")
        if "AMQ_SCHEDULED_DELAY" in names:
            self.due = now + _seconds(frame, "AMQ_SCHEDULED_DELAY")
        elif "delay" in names:
            self.due = now + _seconds(frame, "delay")
        elif "AMQ_SCHEDULED_TIME" in names:
            self.due = _seconds(frame, "AMQ_SCHEDULED_TIME")
        self.end_delay(now)
        if "priority" in names:
            self.priority = _priority(frame.get("priority") or "")
        if "JMSXGroupID" in names:
            self.group = frame.get("JMSXGroupID") or ""

    def _read_rank(self, headers: dict[str, str]) -> None:
        if "priority" in headers:
            self.priority = _priority(headers["priority"])
        self.group = headers.get("JMSXGroupID", "")

    @property
    def headers(self) -> dict[str, str]:
        """Headers passed on to subscribers."""
        headers = self._headers
        if headers is None:
            headers = self._headers = _parsed(self.lines)
        return headers

    @property
    def lines(self) -> bytes:
        """The passed-on headers as header lines of 1.2, each with its line feed."""
        lines = self._lines
        if lines is None:
            lines = b"".join(header_line(k, v, "1.2") for k, v in self.headers.items())
            self._lines = lines
        return lines

    def is_expired(self, now: float) -> bool:
        """Return True if the message has expired."""
        return 0 < self.expires <= now

    def moved(self, destination: str, more: dict[str, str]) -> Message:
        """Return a copy for another destination, with further headers in front.

        It has neither an expiry nor a delay.
        """
        headers = {"destination": destination, **more}
        headers.update((k, v) for k, v in self.headers.items() if k not in headers)
        return self.with_headers(headers)

    def tail(self, version: Version) -> bytes:
        """Return the end of a MESSAGE frame, after the headers of one delivery.

        It consists of the passed-on header lines, a blank line, the body, NUL and a line feed. A
        connection without ``eol_after_frames`` leaves the line feed out.
        """
        tail, known = self._tail, self._tail_version
        if tail is not None:
            if version == known or self._is_shared:
                return tail
            if self._is_plain and version != "1.0" and known != "1.0":
                return tail
        lines = self.passed_lines(version)
        self._tail_version = version
        self._is_shared = self._is_plain and version == "1.0" and lines is self._lines
        tail = self._tail = b"".join((lines, b"\n", self.body, b"\0\n"))
        return tail

    def passed_lines(self, version: Version) -> bytes:
        """Return the passed-on header lines, as a version escapes them."""
        lines = self.lines
        # Without escapes 1.1 and 1.2 have the same bytes.
        self._is_plain = self._is_plain or lines.find(b"\\") < 0
        if version == "1.0":
            is_same = self._is_plain and is_same_on_1_0(lines)
        else:
            is_same = self._is_plain or version == "1.2"
        if not is_same:
            lines = b"".join([header_line(k, v, version) for k, v in self.headers.items()])
        return lines


def _passed_on(frame: Frame) -> dict[str, str]:
    """Return the headers of a SEND frame that are passed on."""
    return {
        name: value
        for name, value in frame.headers.items()
        if name not in _NOT_PASSED_ON and not (name == _BROWSER and value == "end")
    }


def _add_length(headers: dict[str, str], body: bytes) -> None:
    if body and "content-length" not in headers:
        headers["content-length"] = str(len(body))


def _octets(headers: dict[str, str]) -> int:
    """Return the size of headers, in characters."""
    octets = 0
    for name, value in headers.items():
        octets += len(name) + len(value)
    return octets


def _parsed(lines: bytes) -> dict[str, str]:
    headers = {}
    for line in lines.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        name, _, value = line.partition(":")
        if "\\" in line:
            name, value = unescape(name, "1.2"), unescape(value, "1.2")
        headers[name] = value
    return headers


def _seconds(frame: Frame, name: str) -> float:
    """Return a header with milliseconds, in seconds."""
    return as_number(name, frame.get(name) or "", "milliseconds", _MOST_DIGITS) / 1000


def _priority(value: str) -> int:
    """Return the priority that a header asks for; the default if it is no number, as in JMS."""
    found = parse_number(value, _MOST_DIGITS)
    return _USUAL_PRIORITY if found is None else min(found, _HIGHEST_PRIORITY)
