"""Parameters and results of applying changesets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from stompkit.replica.rows import Conflict
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.store import ChangesetRecord
from stompkit.replica.vectors import Dot
from stompkit.replication.model.events import Changeset
from stompkit.replication.model.values import Value

__all__ = ["Bounds", "Hooks", "Incoming", "Outcome", "RefuseChangesetError", "WriteRefusedError"]

_log: Final = logging.getLogger(__name__)


class RefuseChangesetError(Exception):
    """Raised by a ``validate`` hook to refuse a changeset; ``str()`` gives the reason."""


class WriteRefusedError(ValueError):
    """The database refuses rows of a local write; nothing is written. ``str()`` says why."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of the application."""

    #: Called within the transaction, before a changeset of another node is applied.
    validate: Callable[[Changeset], object] | None = None
    #: Called after the commit, with each applied changeset.
    after_apply: Callable[[Changeset], object] | None = None
    #: Called after the commit with table, key and conflict for each new conflict.
    on_conflict: Callable[[str, Mapping[str, Value], Conflict], object] | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Maximum number of held changesets, and their size in bytes."""

    hold_max: int = 10_000
    hold_max_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Incoming:
    """A received changeset, and the node that sent it."""

    signed: SignedChangeset
    via: str


@dataclass(slots=True)
class Outcome:
    """The result of applying changesets."""

    applied: list[Changeset] = field(default_factory=list)
    #: The applied changesets as they are stored.
    records: list[ChangesetRecord] = field(default_factory=list)
    held: int = 0
    duplicates: int = 0
    #: Number of changesets dropped for lack of room: they have to be requested again.
    dropped: int = 0
    #: Ids of the refused changesets, with the reasons.
    refused: list[tuple[str, str]] = field(default_factory=list)
    #: Numbers shared by two changesets.
    forks: list[Dot] = field(default_factory=list)
    quarantined: list[tuple[Dot, str]] = field(default_factory=list)
    conflicts: list[tuple[str, dict[str, Value], Conflict]] = field(default_factory=list)

    def notify(self, hooks: Hooks) -> None:
        """Call the hooks after the commit; their exceptions are logged."""
        try:
            if hooks.after_apply is not None:
                for changeset in self.applied:
                    hooks.after_apply(changeset)
        except Exception:
            _log.exception("the hook after_apply has failed")
        try:
            if hooks.on_conflict is not None:
                for table, key, conflict in self.conflicts:
                    hooks.on_conflict(table, key, conflict)
        except Exception:
            _log.exception("the hook on_conflict has failed")
