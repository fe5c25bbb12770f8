"""A message, and its octets for each version of the protocol."""

from __future__ import annotations

from typing import Final

from stompkit.frames import Frame, Version, escape, unescape
from stompkit.server._errors import Refused
from stompkit.server.interfaces import StoredMessage

__all__ = ["Message", "header_line"]

#: Headers of SEND that concern the broker alone, and those that only the broker may set.
_NOT_PASSED_ON: Final = frozenset(
    {
        "receipt",
        "transaction",
        "message-id",
        "subscription",
        "ack",
        "redelivered",
        "delivery-count",
    }
)

#: Headers of SEND that say when a message is delivered, until when, and before which others.
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
_ORDINARY: Final = _NOT_PASSED_ON | _OF_TIME_AND_RANK
_USUAL_PRIORITY: Final = 4
_HIGHEST_PRIORITY: Final = 9
_MOST_DIGITS: Final = 15


def header_line(name: str, value: str, version: Version) -> bytes:
    """One escaped header line with its line end.

    1.0 has no escapes, and no way to carry a line feed, or a colon in a name: there the escaped
    form is sent as the nearest thing. Octets that are no UTF-8, which a tolerant decoder keeps,
    go out as they came.
    """
    if version == "1.0":
        if "\n" not in value and "\n" not in name and ":" not in name:
            return f"{name}:{value}\n".encode("utf-8", "surrogateescape")
        version = "1.1"
    line = f"{escape(name, version)}:{escape(value, version)}\n"
    return line.encode("utf-8", "surrogateescape")


class Message:
    """What was sent to a destination: headers and body, unchanged for all its life.

    ``headers`` holds what is passed on to subscribers; the headers that the broker adds to each
    MESSAGE (``subscription``, ``message-id``, ``ack``, ...) are not among them. ``expires`` and
    ``due`` are seconds since the epoch, 0 for none.
    """

    __slots__ = (
        "_headers",
        "_lines",
        "_tails",
        "body",
        "destination",
        "due",
        "expires",
        "group",
        "id",
        "priority",
        "size",
    )

    def __init__(self, message_id: str, headers: dict[str, str], body: bytes) -> None:
        """Make a message; ``headers`` has ``destination`` and is not changed any more."""
        self.id = message_id
        self.destination = headers["destination"]
        self.body = body
        self.expires = 0.0
        self.due = 0.0
        self.priority = _USUAL_PRIORITY
        #: Messages of one group go to one consumer; empty for none.
        self.group = ""
        self._headers: dict[str, str] | None = headers
        self._lines: bytes | None = None
        self._tails: dict[Version, bytes] = {}
        #: Octets that count against the limits of a queue.
        self.size = len(body) + sum(map(len, headers)) + sum(map(len, headers.values()))

    @classmethod
    def from_send(
        cls, frame: Frame, destination: str, message_id: str, version: Version, now: float
    ) -> Message:
        """Make a message of a SEND frame that arrived on a session of ``version``.

        ``destination`` is where it goes; the header says so in the words of its sender.
        Raises :class:`Refused` for a header that should be a number and is not.
        """
        headers = frame.headers
        ordinary = headers.keys().isdisjoint(_ORDINARY)
        untouched = not frame.repeated
        if not ordinary and not headers.keys().isdisjoint(_NOT_PASSED_ON):
            headers = {k: v for k, v in headers.items() if k not in _NOT_PASSED_ON}
            untouched = False
        body = frame.body
        if body and "content-length" not in headers:
            headers["content-length"] = str(len(body))
            untouched = False
        message = cls(message_id, headers, body)
        message.destination = destination
        if not ordinary:
            message._read_time_and_rank(now)
        if untouched and frame.head is not None:
            # Where nothing needed an escape, the octets that came can go out again as they are.
            _, _, lines = frame.head.partition(b"\n")
            if (
                b"\\" not in lines
                and b"\r" not in lines
                and lines.count(b":") == len(headers)
                and version != "1.0"
            ):
                message._lines = lines + b"\n"
        return message

    @classmethod
    def from_store(cls, stored: StoredMessage) -> Message:
        """Make a message of what the store has kept."""
        message = cls.__new__(cls)
        message.id = stored.id
        message.body = stored.body
        message.size = stored.size
        message.expires = stored.expires_ms / 1000
        message.due = stored.due_ms / 1000
        message._lines = stored.lines
        message._headers = None
        message._tails = {}
        headers = message.headers
        message.destination = headers["destination"]
        message.priority = _USUAL_PRIORITY
        message.group = headers.get("JMSXGroupID", "")
        if "priority" in headers:
            message.priority = _priority(headers["priority"])
        return message

    def _read_time_and_rank(self, now: float) -> None:
        headers = self.headers
        if "expires" in headers:
            self.expires = _number(headers, "expires") / 1000
        elif "expiration" in headers:
            self.expires = now + _number(headers, "expiration") / 1000
        if "AMQ_SCHEDULED_DELAY" in headers:
            self.due = now + _number(headers, "AMQ_SCHEDULED_DELAY") / 1000
        elif "delay" in headers:
            self.due = now + _number(headers, "delay") / 1000
        elif "AMQ_SCHEDULED_TIME" in headers:
            self.due = _number(headers, "AMQ_SCHEDULED_TIME") / 1000
        if self.due <= now:
            self.due = 0.0
        if "priority" in headers:
            self.priority = _priority(headers["priority"])
        self.group = headers.get("JMSXGroupID", "")

    @property
    def headers(self) -> dict[str, str]:
        """What is passed on to subscribers."""
        headers = self._headers
        if headers is None:
            assert self._lines is not None  # a message has one or the other
            headers = self._headers = _parsed(self._lines)
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
        """Whether its time has passed."""
        return 0 < self.expires <= now

    def moved(self, destination: str, more: dict[str, str]) -> Message:
        """A copy for another destination, with further headers in front.

        It has neither an end of its time nor a time to wait for.
        """
        headers = {"destination": destination, **more}
        headers.update((k, v) for k, v in self.headers.items() if k not in headers)
        copy = Message(self.id, headers, self.body)
        copy.priority = self.priority
        copy.group = self.group
        return copy

    def tail(self, version: Version) -> bytes:
        """The end of a MESSAGE frame: passed-on header lines, blank line, body and NUL."""
        tail = self._tails.get(version)
        if tail is None:
            lines = self.lines
            if b"\\" not in lines:
                # Where nothing is escaped, all versions have the same octets.
                tail = b"%b\n%b\0" % (lines, self.body)
                self._tails = {"1.0": tail, "1.1": tail, "1.2": tail}
                return tail
            if version != "1.2":
                lines = b"".join(header_line(k, v, version) for k, v in self.headers.items())
            tail = self._tails[version] = b"%b\n%b\0" % (lines, self.body)
        return tail


def _parsed(lines: bytes) -> dict[str, str]:
    headers = {}
    for line in lines.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        name, _, value = line.partition(":")
        if "\\" in line:
            name, value = unescape(name, "1.2"), unescape(value, "1.2")
        headers[name] = value
    return headers


def _number(headers: dict[str, str], name: str) -> int:
    value = headers[name]
    if not (value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS):
        raise Refused(f"{name} {value[:40]!a} is not a number of milliseconds", "bad-header")
    return int(value)


def _priority(value: str) -> int:
    """The priority that a header asks for; anything but a number is the usual one, as in JMS."""
    if not (value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS):
        return _USUAL_PRIORITY
    return min(int(value), _HIGHEST_PRIORITY)
