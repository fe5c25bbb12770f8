"""A message, and its octets for each version of the protocol."""

from __future__ import annotations

from typing import Final

from stompkit.frames import Frame, Version, escape

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
    MESSAGE (``subscription``, ``message-id``, ``ack``, ...) are not among them.
    """

    __slots__ = ("_tails", "body", "destination", "headers", "id", "size")

    def __init__(self, message_id: str, headers: dict[str, str], body: bytes) -> None:
        """Make a message; ``headers`` has ``destination`` and is not changed any more."""
        self.id = message_id
        self.destination = headers["destination"]
        self.headers = headers
        self.body = body
        self._tails: dict[Version, bytes] = {}
        #: Octets that count against the limits of a queue.
        self.size = len(body) + sum(map(len, headers)) + sum(map(len, headers.values()))

    @classmethod
    def from_send(cls, frame: Frame, message_id: str, version: Version) -> Message:
        """Make a message of a SEND frame that arrived on a session of ``version``."""
        headers = frame.headers
        untouched = headers.keys().isdisjoint(_NOT_PASSED_ON) and not frame.repeated
        if not untouched:
            headers = {k: v for k, v in headers.items() if k not in _NOT_PASSED_ON}
        body = frame.body
        if body and "content-length" not in headers:
            headers["content-length"] = str(len(body))
            untouched = False
        message = cls(message_id, headers, body)
        if untouched and frame.head is not None:
            # Where nothing needed an escape, the octets that came can go out again as they are.
            _, _, lines = frame.head.partition(b"\n")
            if (
                b"\\" not in lines
                and b"\r" not in lines
                and lines.count(b":") == len(headers)
                and version != "1.0"
            ):
                tail = b"%b\n\n%b\0" % (lines, body)
                message._tails = {"1.0": tail, "1.1": tail, "1.2": tail}
        return message

    def moved(self, destination: str, more: dict[str, str]) -> Message:
        """A copy for another destination, with further headers in front."""
        headers = {"destination": destination, **more}
        headers.update((k, v) for k, v in self.headers.items() if k not in headers)
        return Message(self.id, headers, self.body)

    def tail(self, version: Version) -> bytes:
        """The end of a MESSAGE frame: passed-on header lines, blank line, body and NUL."""
        tail = self._tails.get(version)
        if tail is None:
            lines = b"".join(header_line(k, v, version) for k, v in self.headers.items())
            tail = self._tails[version] = b"%b\n%b\0" % (lines, self.body)
        return tail
