"""What can be wrong with what comes over a broker."""

from __future__ import annotations

__all__ = ["MessageProblem"]


class MessageProblem(ValueError):
    """What is no message, or one that is not trusted; ``str()`` says why.

    Where a signature is missing or wrong ``__cause__`` is
    :class:`~stompkit.replica.signing.Untrusted`.
    """
