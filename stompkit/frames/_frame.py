"""One STOMP frame as a value."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import final

from stompkit.frames._shape import Shape

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

    ``shape`` is one object shared by frames of a connection with the same command and header names
    in the same order. The decoder finds it only for a part of them; otherwise it is ``None``.

    ``is_exact`` is true if the decoder found that the header lines of ``head`` are those that
    :func:`encode` writes for ``headers`` in STOMP 1.2. They can then be sent again. With
    ``is_plain`` they are the same in all versions, since they have no escape sequences.

    A decoded frame may create the mapping ``headers`` on first use. :meth:`get` does not need it.
    """

    __slots__ = (
        "_headers",
        "_lines",
        "body",
        "command",
        "head",
        "is_exact",
        "is_plain",
        "model",
        "repeated",
        "shape",
    )

    def __init__(
        self,
        command: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        repeated: tuple[tuple[str, str], ...] = (),
        head: bytes | None = None,
        model: bytes | None = None,
        is_plain: bool = False,  # noqa: FBT001, FBT002 (only a decoder passes it)
        shape: Shape | None = None,
        lines: list[str] | None = None,
    ) -> None:
        """Create a frame; ``headers`` is copied, so that it can be changed afterwards.

        ``head`` and the arguments after it are for a decoder, whose dict is not copied. It may pass
        the lines of the head in place of ``headers`` if it passes their ``shape``.
        """
        self.command = command
        self._headers: dict[str, str] | None
        if head is not None and (headers is None or isinstance(headers, dict)):
            self._headers = headers
        else:
            self._headers = {} if headers is None else dict(headers)
        self.body = body
        self.repeated = repeated
        self.head = head
        self.model = model
        self.shape = shape
        self._lines = lines
        self.is_exact = is_plain or shape is not None
        self.is_plain = is_plain

    @property
    def headers(self) -> dict[str, str]:
        """The valid value of each header by its name, in the order of appearance."""
        headers = self._headers
        if headers is None:
            headers = self._headers = self._parsed()
        return headers

    @headers.setter
    def headers(self, headers: dict[str, str]) -> None:
        self._headers = headers

    def _parsed(self) -> dict[str, str]:
        shape, lines = self.shape, self._lines
        if shape is None or lines is None:
            return {}
        return {name: lines[place][len(name) + 1 :] for name, place in shape.places.items()}

    def get(self, name: str) -> str | None:
        """Return the valid value of a header; None without it."""
        headers = self._headers
        if headers is not None:
            return headers.get(name)
        shape, lines = self.shape, self._lines
        if shape is None or lines is None:
            return None
        place = shape.places.get(name, 0)
        return lines[place][len(name) + 1 :] if place else None

    def header_lines(self, without: Container[str] = ()) -> bytes:
        """Return the header lines of an exact head, each with its line feed.

        The lines of the headers named in *without* are left out. Raises ValueError if the head is
        not exact.
        """
        head = self.head
        if head is None or not self.is_exact:
            raise ValueError("the header lines of this frame are not known: encode it")
        if not without:
            rest = head[len(self.command) + 1 :]
            return rest + b"\n" if rest else b""
        shape, lines = self.shape, self._lines
        if shape is None or lines is None:
            lines = head.decode().split("\n")
            shape = Shape(self.command, [line[: line.index(":")] for line in lines[1:]])
        kept = [lines[place] for name, place in shape.places.items() if name not in without]
        kept.append("")
        return "\n".join(kept).encode()

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
