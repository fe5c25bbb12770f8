"""What goes into applying changesets, and what comes of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from stompkit.replica.rows import Conflict
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.store import ChangesetRecord
from stompkit.replica.vectors import Dot
from stompkit.replication.events import Changeset
from stompkit.replication.values import Value

__all__ = ["Bounds", "Hooks", "Incoming", "Outcome", "Refuse", "WriteRefused"]

_log: Final = logging.getLogger(__name__)


class Refuse(Exception):
    """Raised by a ``validate`` hook: a changeset is not to be applied here; ``str()`` says why."""


class WriteRefused(ValueError):
    """The database refuses rows that a program writes; nothing is written. ``str()`` says why."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What an application does beside."""

    #: Called within the transaction, before a changeset of another node is applied.
    validate: Callable[[Changeset], object] | None = None
    #: Called after the commit, with each that was applied.
    after_apply: Callable[[Changeset], object] | None = None
    #: Called after the commit with table, key and each conflict that is new.
    on_conflict: Callable[[str, Mapping[str, Value], Conflict], object] | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may wait for what comes before it: changesets, and octets of them."""

    hold_max: int = 10_000
    hold_max_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Incoming:
    """A changeset that has come, and from which node."""

    signed: SignedChangeset
    via: str


@dataclass(slots=True)
class Outcome:
    """What became of changesets."""

    applied: list[Changeset] = field(default_factory=list)
    #: The same, as they are stored.
    records: list[ChangesetRecord] = field(default_factory=list)
    held: int = 0
    duplicates: int = 0
    #: How many had no room to wait: they have to be asked for again.
    dropped: int = 0
    #: What can't be let in at all, by its id, and why.
    refused: list[tuple[str, str]] = field(default_factory=list)
    #: Numbers under which there are two changesets.
    forks: list[Dot] = field(default_factory=list)
    quarantined: list[tuple[Dot, str]] = field(default_factory=list)
    conflicts: list[tuple[str, dict[str, Value], Conflict]] = field(default_factory=list)

    def tell(self, hooks: Hooks) -> None:
        """Call the hooks for what is committed; what they raise is logged."""
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
