"""Sinks: stores that apply changesets.

A sink stores the number of the last changeset of each origin in the same transaction as the
changes. Repeated changesets therefore take effect once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from stompkit._common.moved import renamed
from stompkit.replication.model.events import Changeset, RowChange

__all__ = ["ApplyError", "Refuse", "Refused", "RowSink", "Sink", "SinkMisconfiguredError", "sifted"]


class ApplyError(Exception):
    """A changeset that cannot be applied, also not in a retry; ``str()`` gives the details."""


class SinkMisconfiguredError(Exception):
    """A sink that cannot work with its configuration; ``str()`` gives the reason.

    The changesets are valid, so none becomes a dead letter. The error is permanent, so there is no
    retry.
    """


class Sink(Protocol):
    """A store that applies changesets; used by one thread."""

    def last(self, origin: str) -> int | None:
        """Return the number of the last changeset of that origin; ``None`` if there was none."""

    def apply(self, changesets: Sequence[Changeset]) -> None:
        """Apply changesets, and store their numbers, in one transaction.

        A changeset whose number is not above the last one of its origin has no effect. Applying is
        also idempotent: a written row exists afterwards, independently of the previous state, and a
        deleted one does not. Raises :class:`ApplyError` if a retry is useless, and
        :class:`SinkMisconfiguredError` if nothing can be applied at all. Any other exception may be
        retried. After an exception nothing is applied, or only the first changesets with their
        numbers.
        """

    def skip(self, changeset: Changeset) -> None:
        """Record a changeset as applied without applying it."""

    def close(self) -> None:
        """Close connections."""


@dataclass(frozen=True)
class Refused:
    """A change that cannot be applied, alone or among others."""

    change: RowChange
    reason: str
    """Reason with changeset, table, key and, if it is about one, the column."""


#: Function that receives the refused changes of a changeset, before the others are committed; its
#: exception rolls back the others.
Refuse = Callable[[Sequence[Refused]], None]


@runtime_checkable
class RowSink(Protocol):
    """A sink that can apply a changeset without some of its changes."""

    def apply_rows(self, changeset: Changeset, refuse: Refuse) -> None:
        """Apply each acceptable change, and store the changeset's number, in one transaction.

        The other changes are passed to ``refuse`` before the commit, all at once. A changeset whose
        number is not above the last one has no effect, and nothing is refused. Raises the errors of
        :meth:`Sink.apply`, and of ``refuse``; nothing is applied then.
        """


def sifted(
    changes: Iterable[RowChange], check: Callable[[RowChange], object]
) -> tuple[list[RowChange], list[Refused]]:
    """Return the changes that ``check`` accepts, and those for which it raises ApplyError."""
    kept: list[RowChange] = []
    refused: list[Refused] = []
    for change in changes:
        try:
            check(change)
        except ApplyError as problem:
            refused.append(Refused(change, str(problem)))
        else:
            kept.append(change)
    return kept, refused


renamed(
    __name__,
    ApplyProblem="ApplyError",
    SinkMisconfigured="SinkMisconfiguredError",
)
