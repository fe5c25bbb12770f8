"""Snapshots: the transfer of another node's rows, page by page, while both nodes work.

Pages are rows in the order of their ids, each with the vector of the other node when it was read. A
later changeset that a page includes is skipped, row by row. The replica reaches the vector of the
first page after the last page. Rows that only this node has are kept.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from stompkit.replica.applier import WorkingRows
from stompkit.replica.engine._core import Core
from stompkit.replica.engine._facts import Page, PageWant
from stompkit.replica.engine._peers import Peers
from stompkit.replica.engine._selection import includes
from stompkit.replica.engine._types import Peer
from stompkit.replica.messages import MessageError
from stompkit.replica.rows import RowState
from stompkit.replica.store import (
    LONGEST_NAME,
    OriginRecord,
    Reader,
    RowRecord,
    Tx,
    check_name,
    row_id,
)
from stompkit.replica.vectors import Vector, count, dominates, merged, missing
from stompkit.replication.model.values import row_from_json, row_to_json

__all__ = ["Snapshots", "row_item"]

_BOOTSTRAP: Final = "bootstrap"
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_DECODER: Final = msgspec.json.Decoder(tuple[str, dict[str, Any], bytes, dict[str, int]])


def row_item(record: RowRecord, more: Vector) -> bytes:
    """Encode a row as an item of a page; ``more`` is what it includes beyond the page's vector."""
    return _ENCODER.encode((record.table, row_to_json(record.key), record.encoded(), more))


def _row_of(item: bytes) -> tuple[RowRecord, Vector]:
    try:
        table, key, octets, more = _DECODER.decode(item)
        state = RowState.decode(octets)
        made = row_from_json(key)
        check_name("the name of a table", table, LONGEST_NAME)
        if not made:
            raise ValueError("a row without a key")
    except (msgspec.DecodeError, ValueError) as error:
        raise MessageError(f"a row of a page cannot be read: {error}") from None
    record = RowRecord(id=row_id(table, made), table=table, key=made, state=state, is_live=False)
    return record, more


class Snapshots:
    """The receiving side; its progress is stored, so that it continues after a restart."""

    def __init__(self, core: Core, peers: Peers) -> None:
        """Start without a snapshot."""
        self._core = core
        self._peers = peers
        #: State of the transfer; ``None`` if there is none. It has ``after`` and, from the second
        #: page on, ``base``, ``clocks``, ``heads`` and ``hlc``.
        self._state: dict[str, Any] | None = None
        self._number = core.chance.getrandbits(40)
        self._peer = ""
        self._until_s = 0.0
        self._has_pages = False

    def load(self, state: dict[str, Any] | None, *, has_pages: bool) -> None:
        """Continue a transfer of a previous process."""
        self._state = state
        self._has_pages = has_pages

    def look(self, reader: Reader) -> None:
        """Start a transfer that another process of this node has requested."""
        state: dict[str, Any] | None = None if self.is_running else reader.meta(_BOOTSTRAP)
        if state is not None:
            self.load(state, has_pages=True)

    @property
    def is_running(self) -> bool:
        """True while a snapshot is being transferred."""
        return self._state is not None

    def begin(self, tx: Tx) -> dict[str, Any]:
        """Start a transfer; returns the argument for :meth:`load` after the commit."""
        state: dict[str, Any] = {"after": ""}
        tx.set_meta(_BOOTSTRAP, state)
        return state

    def disconnected(self) -> None:
        """Forget the node that was asked, because it may not answer."""
        self._peer = ""

    def poll(self, now: float) -> None:
        """Request the next page."""
        if self._state is None or (self._peer and now < self._until_s):
            return
        if self._peer:
            known = self._peers.get(self._peer)
            if known is not None:
                known.useless_until_s = now + self._core.settings.repeat_s
        able = [each for each in self._able() if each.useless_until_s <= now]
        if not able:
            self._peer = ""
            return
        if "base" not in self._state:
            # The whole snapshot lacks whatever the first page lacks.
            most = max(self._gain(each) for each in able)
            able = [each for each in able if self._gain(each) == most]
        peer = able[self._core.chance.randrange(len(able))]
        self._peer = peer.origin
        self._until_s = now + self._core.settings.request_timeout_s
        self._number += 1
        self._core.say(
            min(peer.ports & self._core.connected),
            PageWant(
                to=peer.origin,
                number=self._number,
                after=self._state["after"],
                most_bytes=self._core.settings.window_bytes,
            ),
            to=peer.origin,
        )

    def deadline(self, now: float) -> float | None:
        """Return the time at which :meth:`poll` is due."""
        if self._state is None:
            return None
        if self._peer:
            return self._until_s
        # The deadline must not move with each call: it would never come.
        times = [each.useless_until_s for each in self._able()]
        return max(now, min(times)) if times else None

    def _able(self) -> list[Peer]:
        """Return the nodes that can be asked for the next page."""
        state = self._state or {}
        return [
            each
            for each in self._peers.reachable(self._core.connected)
            if not each.only_sends
            and dominates(each.vector, state.get("base", {}))
            and self._has_tables(each)
        ]

    def _has_tables(self, peer: Peer) -> bool:
        """Return True if a node has all tables of this one; those that it has besides are left."""
        return includes(str(peer.facts.get("selection", "")), self._core.settings.selection)

    @property
    def obstacle(self) -> str:
        """Reason why none of the connected nodes can give the snapshot; empty if one can."""
        if self._state is None or self._able():
            return ""
        reasons = sorted(
            f"{each.origin} {self._reason(each)}"
            for each in self._peers.reachable(self._core.connected)
        )
        if not reasons:
            return ""
        return (
            f"this node needs a snapshot of all its rows, which no connected node has:"
            f" {', '.join(reasons)}. Connect one with at least these tables and changesets"
        )

    def _reason(self, peer: Peer) -> str:
        if peer.only_sends:
            return "only sends"
        return "lacks changesets" if self._has_tables(peer) else "leaves out some of the tables"

    def _gain(self, peer: Peer) -> int:
        """Return the number of changesets that a node has and this one lacks."""
        return count(missing(self._core.vector, peer.vector))

    def expects(self, page: Page) -> bool:
        """Return True if the page was requested."""
        return (
            self._state is not None
            and page.number == self._number
            and page.after == self._state["after"]
            and dominates(page.vector, self._state.get("base", {}))
        )

    def take(self, tx: Tx, page: Page, items: list[bytes]) -> dict[str, Any] | None:
        """Merge a page; returns the new state for :meth:`load`, ``None`` after the last.

        Raises :class:`~stompkit.replica.messages.MessageError`.
        """
        assert self._state is not None
        state = dict(self._state)
        read = [_row_of(item) for item in items]
        if "base" not in state:
            state |= {"base": page.vector, "clocks": page.clocks, "heads": page.heads}
            state["hlc"] = page.hlc
        applier = self._core.applier
        after = bytes.fromhex(page.after) if page.after else None
        upto = bytes.fromhex(page.upto) if page.upto else None
        own = tx.vector()
        rows = WorkingRows(tx, applier.rules)
        theirs = {record.id: (record, more) for record, more in read if applier.wants(record.table)}
        for record in tx.row_range(after, upto):
            # The other node no longer has this row, or only this node has it.
            rows.take(record)
            if record.id not in theirs:
                rows.join(record.id, RowState(), own, page.vector)
        for record, more in theirs.values():
            rows.join_record(record, own, merged(page.vector, more))
        rows.materialise(applier.data)
        rows.store()
        self._core.counts["pages"] += 1
        if page.upto:
            state["after"] = page.upto
            tx.set_meta(_BOOTSTRAP, state)
            return state
        self._finish(tx, state)
        return None

    def _finish(self, tx: Tx, state: dict[str, Any]) -> None:
        """Advance the vector to that of the first page, without losing own progress."""
        known = tx.origins()
        changed = []
        for origin, number in state["base"].items():
            last = known.get(origin) or OriginRecord(origin=origin)
            if number <= last.sequence:
                continue
            clock = merged(last.clock, state["clocks"].get(origin, {}))
            changed.append(OriginRecord(origin=origin, sequence=number, clock=clock, floor=number))
        tx.put_origins(changed)
        tx.drop_changesets({each.origin: each.sequence for each in changed})
        tip = tx.meta("tip") or {"heads": [], "hlc": 0}
        hlc = self._core.applier.seen(tip["hlc"], state["hlc"])
        heads = sorted({*tip["heads"], *state["heads"]})
        tx.set_meta("tip", {"heads": heads, "hlc": hlc})
        vector = tx.vector()
        tx.unhold(
            [
                (each.origin, each.sequence)
                for each in tx.held()
                if each.sequence <= vector.get(each.origin, 0)
            ]
        )
        tx.set_meta(_BOOTSTRAP, None)
        self._core.applier.heal(tx)

    def taken(self, state: dict[str, Any] | None) -> None:
        """Record that a page is committed."""
        self._state = state
        self._peer = ""
        self._has_pages = True

    def clear(self, tx: Tx) -> bool:
        """Remove the page vectors after everything in the pages was applied."""
        if not self._has_pages or self._state is not None:
            return False
        vector = tx.vector()
        if not all(dominates(vector, each) for each in tx.page_vectors().values()):
            return False
        tx.clear_pages()
        return True

    def cleared(self) -> None:
        """Record that the removal is committed."""
        self._has_pages = False
