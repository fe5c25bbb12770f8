"""Protocol errors on a STOMP connection, and the ERROR frames sent for them."""

from __future__ import annotations

from stompkit.frames._frame import Frame

__all__ = ["LocalProtocolError", "ProtocolError", "RemoteProtocolError", "refusal"]


class ProtocolError(Exception):
    """A frame, or a sequence of frames, that the STOMP specifications do not allow.

    Raised only through its two subclasses, which say whose mistake it was.
    """


class LocalProtocolError(ProtocolError):
    """A local request that STOMP forbids; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol; the connection cannot be used any further.

    ``code`` is a stable, machine-readable word (``bad-escape``, ``missing-header``, ...), the
    value of the ``stompkit-code`` header in ``reply``.  ``reply`` is the ERROR frame that a
    server sends before it closes; a client, which has no ERROR frame to send, ignores it.
    """

    def __init__(self, message: str, *, code: str, reply: Frame | None = None) -> None:
        """Keep the message for people, the code for programs and the frame for the peer."""
        super().__init__(message)
        self.message = message
        self.code = code
        self.reply = reply


def refusal(
    message: str, code: str, *, receipt: str | None = None, extra: dict[str, str] | None = None
) -> RemoteProtocolError:
    """Make a :class:`RemoteProtocolError` with its ERROR frame (1.2, "ERROR").

    ``message`` is one line. ``receipt`` is the ``receipt`` header of the frame at fault, which
    the ERROR frame names; ``extra`` are further headers of the ERROR frame.
    """
    headers = {"message": message, "stompkit-code": code, "content-type": "text/plain"}
    if receipt is not None:
        headers["receipt-id"] = receipt
    headers.update(extra or {})
    reply = Frame("ERROR", headers, message.encode("utf-8", "surrogateescape"))
    return RemoteProtocolError(message, code=code, reply=reply)
