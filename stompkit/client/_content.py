"""The content of a received message: what all clients show of it."""

from __future__ import annotations

__all__ = ["Content", "check_body"]


class Content:
    """Headers and body of a MESSAGE frame."""

    __slots__ = ("body", "headers")

    headers: dict[str, str]
    """Headers of the MESSAGE frame."""
    body: bytes
    """Body of the MESSAGE frame."""

    @property
    def text(self) -> str:
        """Body decoded as UTF-8; raises UnicodeDecodeError for other content."""
        return self.body.decode("utf-8")

    @property
    def destination(self) -> str:
        """Destination of the message, as the broker names it."""
        return self.headers["destination"]

    @property
    def id(self) -> str:
        """The ``message-id`` header."""
        return self.headers["message-id"]

    @property
    def redelivered(self) -> bool:
        """True if the broker has marked the message as delivered before."""
        return self.headers.get("redelivered", "").lower() == "true"

    def __repr__(self) -> str:
        """Return the id, destination and size of the message."""
        return f"<Message {self.id!a} of {self.destination!a}, {len(self.body)} octets>"


def check_body(body: object) -> None:
    """Raise ``TypeError`` for the body of a message that is not bytes."""
    if not isinstance(body, bytes):
        remedy = ": encode it, as in text.encode()" if isinstance(body, str) else ""
        raise TypeError(f"a body is bytes, not {type(body).__name__}{remedy}")
