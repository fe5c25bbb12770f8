"""What can be wrong with a server, with its log, and with where to go on."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["MysqlProblem", "OffsetLost", "PreflightProblem", "StreamProblem"]


class MysqlProblem(Exception):
    """The base of what is raised here; ``str()`` says what is wrong and what to do."""


class PreflightProblem(MysqlProblem):
    """The server is not set up for this; ``problems`` has every reason, not only the first."""

    def __init__(self, problems: Sequence[str]) -> None:
        """Keep the reasons."""
        self.problems = tuple(problems)
        lines = "".join(f"\n- {problem}" for problem in self.problems)
        super().__init__(f"this server can't be replicated from yet:{lines}")


class OffsetLost(MysqlProblem):
    """Reading can't go on where it ended: the log is gone, was reset, or is another server's.

    What was changed in between can't be had from the log. A snapshot that is taken anew, with empty
    offsets, has the present state of all rows; rows that are gone since then are not told of.
    """


class StreamProblem(MysqlProblem):
    """There is something in the log that can't be told as changes of rows.

    ``position`` is where it stands, as in ``binlog.000001:4711``.
    """

    def __init__(self, text: str, position: str = "") -> None:
        """Say what, and where."""
        self.position = position
        super().__init__(f"at {position}: {text}" if position else text)
