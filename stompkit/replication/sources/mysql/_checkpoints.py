"""Checkpoints of the publisher: the position to resume from, and the state of its transactions."""

from __future__ import annotations

import logging
import time as clocks
from typing import Any, Final

from stompkit.replication.sources.mysql._grouping import Transaction
from stompkit.replication.sources.mysql._positions import Position
from stompkit.replication.sources.mysql._sending import sending
from stompkit.replication.sources.mysql._snapshot import UNCONFIRMED_CHUNKS, copy_progress
from stompkit.replication.sources.mysql._tables.definitions import Definitions
from stompkit.replication.sources.mysql._xa import Prepared
from stompkit.replication.sources.publication import Publication

__all__ = ["Checkpoints"]

_log: Final = logging.getLogger(__name__)

#: Interval in seconds at which a position without changes is recorded.
_ADVANCE_S: Final = 0.5


class Checkpoints:
    """Stores positions in the publication: at once with changes, and soon without any."""

    def __init__(self, publication: Publication, server: str, *, can_copy: bool) -> None:
        """Continue from the checkpoint of *publication*.

        ``server`` is its name for the log. With ``can_copy``, tables may be copied again.
        """
        self._publication = publication
        self._server = server
        self._can_copy = can_copy
        # Numbers after the checkpoint may have been used for other rows.
        self.has_used_numbers = "snapshot" in publication.state
        """True if :meth:`pass_used_numbers` has to be called before anything is published."""
        self.pending: Position | None = None
        """Position after transactions without selected changes, not yet passed on."""
        self._stored: Position | None = None
        self._stored_at = 0.0
        self._prepared: Prepared
        self._definitions: Definitions
        #: Prepared transactions and revision of the definitions that the checkpoint has.
        self._known: tuple[object, ...] | None = None

    def open(self, prepared: Prepared, definitions: Definitions) -> None:
        """Begin a run whose checkpoints have this state."""
        self._prepared = prepared
        self._definitions = definitions

    def begin_stream(self) -> None:
        """Compare the state in full again, because a snapshot may have replaced it."""
        self._known = None

    def pass_used_numbers(self) -> None:
        """Publish empty changesets for numbers that may stand for snapshot chunks at consumers.

        A killed process may have published other contents with the numbers after the checkpoint. A
        consumer that has applied them would skip the new contents as duplicates.
        """
        position = self._publication.position
        with sending:
            for _ in range(UNCONFIRMED_CHUNKS):
                self._publication.publish([], position=position, is_snapshot=True)
            self._publication.flush()
        self.has_used_numbers = False

    def store_later(self, position: Position) -> None:
        """Pass a resume position to the publication soon."""
        self.pending = position
        if clocks.monotonic() - self._stored_at >= _ADVANCE_S:
            self.store()

    def store(self) -> None:
        """Pass the position to the publication, unless it has it."""
        if self.pending is not None and self.pending != self._stored:
            self._stored_at = clocks.monotonic()
            self._stored = self.pending
            with sending:
                self._publication.advance(self.pending.encode(), self.state())

    def state(self) -> dict[str, Any] | None:
        """Return the state of the checkpoint if it has changed."""
        now = (self._definitions.revision, *self._prepared.places.items())
        if now == self._known:
            return None
        state = self._publication.state
        places = {xid: list(place) for xid, place in self._prepared.places.items()}
        definitions = self._definitions.state()
        known = state.get("ddl", Definitions(None).state())
        if places == state.get("xa", {}) and definitions == known:
            self._known = now
            return None
        others = {name: value for name, value in state.items() if name != "xa"}
        if definitions != known:
            others["ddl"] = definitions
        return {**others, "xa": places} if places else others

    def begin_copy(self, transaction: Transaction) -> bool:
        """Schedule copies of tables that a statement has changed; return True if there are any."""
        names = list(dict.fromkeys(transaction.copies))
        shown = ", ".join(f"{schema}.{table}" for schema, table in names)
        if not self._can_copy:
            _log.warning(
                "%s: rows of %s have become others by a statement, and no snapshot is taken",
                self._server,
                shown,
            )
            return False
        _log.warning(
            "%s: %s: copied again, as rows have become others by a statement",
            self._server,
            shown,
        )
        state = {
            **(self.state() or self._publication.state),
            "snapshot": copy_progress(transaction.position, names),
        }
        with sending:
            self._publication.advance(transaction.position.encode(), state)
            self._publication.flush()
        self.pending = None
        return True
