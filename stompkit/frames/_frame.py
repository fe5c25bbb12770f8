"""One STOMP frame as a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

__all__ = ["Frame"]

#: Headers whose values never appear in a log or a traceback.
_SECRET = frozenset({"passcode"})
_SHOWN_BODY_BYTES = 64


@final
class Frame:
    """A command, its headers and a body.

    ``headers`` maps each header name to its value, in the order of appearance. For a repeated name
    the mapping holds the first value, which is the valid one (STOMP 1.2, "Repeated Header
    Entries"). The later ones, which are earlier states of the header, are the ``(name, value)``
    pairs of ``repeated``, in their order on the wire. Names and values are decoded, without escape
    sequences.

    ``head`` holds the bytes from which the decoder read the command and the headers: those before
    the blank line, without the last line feed, still escaped. It is ``None`` on a frame that was
    not decoded from the wire. It is ignored in comparisons and by the encoder, and is not updated
    when ``headers`` is changed.

    ``model`` is one object shared by frames of a connection with equal heads: the head of the first
    of them. The value of ``receipt``, or the delivery that ACK and NACK name, may differ. The
    decoder does not find all such frames.
    """

    __slots__ = ("body", "command", "head", "headers", "model", "repeated")

    def __init__(
        self,
        command: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        repeated: tuple[tuple[str, str], ...] = (),
        head: bytes | None = None,
        model: bytes | None = None,
    ) -> None:
        """Create a frame; ``headers`` is copied, so that it can be changed afterwards.

        A decoder also passes ``head`` and ``model``, and an unshared dict, which is not copied.
        """
        self.command = command
        self.headers: dict[str, str]
        if head is not None and isinstance(headers, dict):
            self.headers = headers
        else:
            self.headers = {} if headers is None else dict(headers)
        self.body = body
        self.repeated = repeated
        self.head = head
        self.model = model

    @property
    def text(self) -> str:
        """Return the body as UTF-8 text; raises UnicodeDecodeError if it is not UTF-8."""
        return self.body.decode("utf-8")

    def values(self, name: str) -> list[str]:
        """Return all values of one header, the valid one first; empty if it is missing."""
        first = self.headers.get(name)
        if first is None:
            return []
        return [first, *(value for key, value in self.repeated if key == name)]

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield all header entries: the valid ones, then the repeated ones."""
        yield from self.headers.items()
        yield from self.repeated

    def __eq__(self, other: object) -> bool:
        """Compare command, headers, repeated headers and body."""
        if not isinstance(other, Frame):
            return NotImplemented
        return (
            self.command == other.command
            and self.headers == other.headers
            and self.body == other.body
            and self.repeated == other.repeated
        )

    __hash__ = None  # type: ignore[assignment]  # frames can be changed

    def __repr__(self) -> str:
        """Return a readable text of limited length, without the passcode."""
        headers = ", ".join(
            f"{name!r}: {'***' if name.strip() in _SECRET else value!r}"[:200]
            for name, value in self.items()
        )
        body = repr(self.body[:_SHOWN_BODY_BYTES])
        if len(self.body) > _SHOWN_BODY_BYTES:
            body += f"... {len(self.body)} octets"
        return f"<Frame {self.command} {{{headers}}} {body}>"
