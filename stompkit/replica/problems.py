"""Errors in messages received from a broker."""

from __future__ import annotations

__all__ = ["MessageProblem"]


class MessageProblem(ValueError):
    """A malformed or untrusted message; ``str()`` says why.

    For a missing or invalid signature, ``__cause__`` is
    :class:`~stompkit.replica.signing.Untrusted`.
    """
