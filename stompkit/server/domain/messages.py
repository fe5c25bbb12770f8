"""A message, and its encoding for each version of the protocol."""

from __future__ import annotations

from typing import Final

from stompkit.frames import Frame, Version, escape, parse_number, unescape
from stompkit.server.domain.names import DEAD_LETTERS
from stompkit.server.domain.session.headers import number
from stompkit.server.interfaces import StoredMessage

__all__ = ["CLAIM", "RECORD", "Message", "header_line"]

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
#: Header that marks the end of browsing, which only the broker may send.
_END_OF_BROWSING: Final = ("browser", "end")
#: Headers of SEND that are not passed on unchanged.
_LOOKED_AT: Final = _NOT_PASSED_ON | {_REASON, _END_OF_BROWSING[0]}

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
_USUAL_PRIORITY: Final = 4
_HIGHEST_PRIORITY: Final = 9
_MOST_DIGITS: Final = 15


def header_line(name: str, value: str, version: Version) -> bytes:
    """Return one escaped header line with its line end.

    1.0 has no escapes, and cannot represent a line feed, or a colon in a name. The escaped form is
    then sent as the closest equivalent. Bytes that are not UTF-8, which a tolerant decoder keeps,
    are sent unchanged.
    """
    if version == "1.0":
        if "\n" not in value and "\n" not in name and ":" not in name:
            return f"{name}:{value}\n".encode("utf-8", "surrogateescape")
        version = "1.1"
    line = f"{escape(name, version)}:{escape(value, version)}\n"
    return line.encode() if line.isascii() else line.encode("utf-8", "surrogateescape")


class _Known:
    """Cached result for a head, reused for messages whose frames match it.

    Most senders repeat their headers; the decoder marks such frames with the same model.
    """

    __slots__ = ("headers", "lines", "model", "octets")

    def __init__(self) -> None:
        """Start without a match."""
        self.model = b""
        self.headers: dict[str, str] = {}
        self.lines = b""
        self.octets = 0


_last: Final = _Known()


class Message:
    """An immutable message: headers and body as sent to a destination.

    ``headers`` holds the headers passed on to subscribers. The headers that the broker adds to each
    MESSAGE (``subscription``, ``message-id``, ``ack``, ...) are not among them. ``expires`` and
    ``due`` are seconds since the epoch, 0 for none.
    """

    __slots__ = (
        "_is_plain",
        "_lines",
        "_tail",
        "_tail_version",
        "body",
        "destination",
        "due",
        "expires",
        "group",
        "headers",
        "id",
        "priority",
        "size",
    )

    def __init__(
        self,
        message_id: str,
        destination: str,
        headers: dict[str, str],
        lines: bytes | None,
        body: bytes,
        size: int,
    ) -> None:
        """Create a message from its headers, and from their 1.2 header lines if known.

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
        #: Headers passed on to subscribers.
        self.headers = headers
        self._lines = lines
        #: The tail built last, its version, and whether all versions share it.
        self._tail: bytes | None = None
        self._tail_version: Version = "1.2"
        self._is_plain = False

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
        headers = frame.headers
        lines = None if version == "1.0" else _lines_as_sent(frame)
        has_length = "content-length" in headers
        timed = not headers.keys().isdisjoint(_OF_TIME_AND_RANK)
        if not headers.keys().isdisjoint(_LOOKED_AT):
            if lines is not None:
                each = zip(headers.items(), lines.splitlines(keepends=True), strict=True)
                lines = b"".join([line for header, line in each if _is_passed_on(header)])
            headers = dict(filter(_is_passed_on, headers.items()))
            if _REASON in headers and destination.startswith(DEAD_LETTERS):
                headers[CLAIM] = "sender"
                if lines is not None:
                    lines += header_line(CLAIM, "sender", "1.2")
        if body and "content-length" not in headers:
            length = str(len(body))
            # The frame's own headers stay unchanged: a blocked frame is processed once more.
            headers = {**headers, "content-length": length}
            if lines is not None:
                lines += f"content-length:{length}\n".encode()
        octets = _octets(headers)
        message = Message(message_id, destination, headers, lines, body, octets + len(body))
        message._is_plain = lines is not None
        if timed:
            message._read_time_and_rank(now)
        elif has_length and lines is not None and frame.model is not None:
            known.model, known.headers, known.lines, known.octets = (
                frame.model,
                headers,
                lines,
                octets,
            )
        return message

    @staticmethod
    def from_store(stored: StoredMessage) -> Message:
        """Create a message from the store."""
        headers = _parsed(stored.lines)
        name, lines = headers["destination"], stored.lines
        message = Message(stored.id, name, headers, lines, stored.body, stored.size)
        message.expires = stored.expires_ms / 1000
        message.due = stored.due_ms / 1000
        message._read_rank()
        return message

    def with_headers(self, headers: dict[str, str]) -> Message:
        """Return a copy with other headers, and with neither an expiry nor a delay."""
        name, size = headers["destination"], _octets(headers) + len(self.body)
        copy = Message(self.id, name, headers, None, self.body, size)
        copy._read_rank()
        return copy

    def _read_time_and_rank(self, now: float) -> None:
        headers = self.headers
        if "expires" in headers:
            self.expires = _milliseconds(headers, "expires") / 1000
        elif "expiration" in headers:
            self.expires = now + _milliseconds(headers, "expiration") / 1000
        if "AMQ_SCHEDULED_DELAY" in headers:
            self.due = now + _milliseconds(headers, "AMQ_SCHEDULED_DELAY") / 1000
        elif "delay" in headers:
            self.due = now + _milliseconds(headers, "delay") / 1000
        elif "AMQ_SCHEDULED_TIME" in headers:
            self.due = _milliseconds(headers, "AMQ_SCHEDULED_TIME") / 1000
        if self.due <= now:
            self.due = 0.0
        self._read_rank()

    def _read_rank(self) -> None:
        headers = self.headers
        if "priority" in headers:
            self.priority = _priority(headers["priority"])
        self.group = headers.get("JMSXGroupID", "")

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
        size = _octets(headers) + len(self.body)
        copy = Message(self.id, destination, headers, None, self.body, size)
        copy.priority = self.priority
        copy.group = self.group
        return copy

    def forget_tail(self) -> None:
        """Discard the cached bytes; :meth:`tail` builds them again."""
        self._tail = None

    def tail(self, version: Version) -> bytes:
        """Return the end of a MESSAGE frame, after the headers of one delivery.

        It consists of the passed-on header lines, a blank line, the body, NUL and a line feed. A
        connection without ``eol_after_frames`` leaves the line feed out.
        """
        tail = self._tail
        if tail is not None and (self._is_plain or self._tail_version == version):
            return tail
        lines = self.lines
        # Without escapes all versions have the same bytes.
        self._is_plain = self._is_plain or b"\\" not in lines
        self._tail_version = version
        if not self._is_plain and version != "1.2":
            lines = b"".join([header_line(k, v, version) for k, v in self.headers.items()])
        tail = self._tail = b"".join((lines, b"\n", self.body, b"\0\n"))
        return tail


def _is_passed_on(header: tuple[str, str]) -> bool:
    return header[0] not in _NOT_PASSED_ON and header != _END_OF_BROWSING


def _octets(headers: dict[str, str]) -> int:
    """Return the size of headers, in characters."""
    octets = 0
    for name, value in headers.items():
        octets += len(name) + len(value)
    return octets


def _lines_as_sent(frame: Frame) -> bytes | None:
    """Return the received header lines if none contains an escape; they can be sent unchanged."""
    if frame.head is None or frame.repeated:
        return None
    _, _, lines = frame.head.partition(b"\n")
    if b"\\" in lines or b"\r" in lines or lines.count(b":") != lines.count(b"\n") + 1:
        return None
    return lines + b"\n"


def _parsed(lines: bytes) -> dict[str, str]:
    headers = {}
    for line in lines.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        name, _, value = line.partition(":")
        if "\\" in line:
            name, value = unescape(name, "1.2"), unescape(value, "1.2")
        headers[name] = value
    return headers


def _milliseconds(headers: dict[str, str], name: str) -> int:
    return number(headers, name, "milliseconds", _MOST_DIGITS)


def _priority(value: str) -> int:
    """Return the priority that a header asks for; the default if it is no number, as in JMS."""
    found = parse_number(value, _MOST_DIGITS)
    return _USUAL_PRIORITY if found is None else min(found, _HIGHEST_PRIORITY)
