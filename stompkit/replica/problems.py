"""Errors in messages received from a broker."""

from __future__ import annotations

from stompkit._common.moved import renamed

__all__ = ["MessageError"]


class MessageError(ValueError):
    """A malformed or untrusted message; ``str()`` says why.

    For a missing or invalid signature, ``__cause__`` is
    :class:`~stompkit.replica.signing.UntrustedError`.
    """


renamed(
    __name__,
    MessageProblem="MessageError",
)
