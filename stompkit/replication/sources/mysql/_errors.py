"""Errors of a server, of its log, and of the position to resume from."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["MysqlError", "OffsetLostError", "PreflightError", "StreamError"]


class MysqlError(Exception):
    """The base class of these errors; ``str()`` gives the reason and the remedy."""


class PreflightError(MysqlError):
    """The server is not configured for this; ``problems`` has every reason, not only the first."""

    def __init__(self, problems: Sequence[str]) -> None:
        """Store the reasons."""
        self.problems = tuple(problems)
        lines = "".join(f"\n- {problem}" for problem in self.problems)
        super().__init__(f"this server cannot be replicated from yet:{lines}")


class OffsetLostError(MysqlError):
    """Reading cannot resume where it ended: the log is gone, was reset, or is another server's.

    The changes in between cannot be read from the log. A new snapshot, with empty offsets,
    publishes the present state of all rows; rows deleted since then are not published.
    """


class StreamError(MysqlError):
    """The log contains an event that cannot be expressed as row changes.

    ``position`` is its position, as in ``binlog.000001:4711``.
    """

    def __init__(self, text: str, position: str = "") -> None:
        """Store the reason and the position."""
        self.position = position
        super().__init__(f"at {position}: {text}" if position else text)
