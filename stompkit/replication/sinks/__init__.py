"""Where changesets end: stores that apply them.

A sink keeps the number of the last changeset of each origin together with what the changesets have
done, in one transaction: what comes twice has its effect once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from stompkit.replication.events import Changeset, RowChange

__all__ = ["ApplyProblem", "Refuse", "Refused", "RowSink", "Sink", "SinkMisconfigured", "sifted"]


class ApplyProblem(Exception):
    """A changeset that can never be applied as things are; ``str()`` says what and why."""


class SinkMisconfigured(Exception):
    """A sink that can't be used as it is set up, whatever it is given; ``str()`` says why.

    No changeset is at fault, so that none becomes a dead letter; and it does not pass by itself, so
    that it is not tried again.
    """


class Sink(Protocol):
    """A store that applies changesets; used by one thread."""

    def last(self, origin: str) -> int | None:
        """The number of the last changeset of that origin; ``None`` where there was none."""

    def apply(self, changesets: Sequence[Changeset]) -> None:
        """Apply changesets, and their numbers with them, in one transaction.

        A changeset with a number that is not above the last one of its origin has no effect.
        Applying is idempotent in itself, too: a row that is written is there afterwards, whatever
        was there before, and one that is deleted is not. Raises :class:`ApplyProblem` where it is
        of no use to try again, :class:`SinkMisconfigured` where nothing can be applied at all; any
        other exception is worth another try. Nothing is applied then.
        """

    def skip(self, changeset: Changeset) -> None:
        """Count a changeset as applied, and do nothing else."""

    def close(self) -> None:
        """Let go of connections."""


@dataclass(frozen=True)
class Refused:
    """A change that can't be applied, alone or among others."""

    change: RowChange
    reason: str
    """Names changeset, table, key and, where it is one, the column."""


#: Takes the changes of a changeset that can't be applied, before the rest of it is committed; what
#: it raises undoes the rest.
Refuse = Callable[[Sequence[Refused]], None]


@runtime_checkable
class RowSink(Protocol):
    """A sink that can apply a changeset without some of its changes."""

    def apply_rows(self, changeset: Changeset, refuse: Refuse) -> None:
        """Apply each change that can be applied, and the changeset's number, in one transaction.

        The other changes are given to ``refuse`` before the commit, all at once. A changeset with a
        number that is not above the last one has no effect, and nothing is refused. Raises what
        :meth:`Sink.apply` raises, and what ``refuse`` raises; nothing is applied then.
        """


def sifted(
    changes: Iterable[RowChange], check: Callable[[RowChange], object]
) -> tuple[list[RowChange], list[Refused]]:
    """Return the changes that ``check`` takes, and those for which it raises ApplyProblem."""
    kept: list[RowChange] = []
    refused: list[Refused] = []
    for change in changes:
        try:
            check(change)
        except ApplyProblem as problem:
            refused.append(Refused(change, str(problem)))
        else:
            kept.append(change)
    return kept, refused
