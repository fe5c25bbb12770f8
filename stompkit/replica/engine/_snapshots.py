"""Taking another node's state: page by page, while both go on.

Pages are rows in the order of their ids, each with the vector that the other node had when it read
them. What is applied later and was in a page already is passed over, row by row; the replica has
the vector of the first page when the last one is there. Rows of its own that nobody else has stay.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from stompkit.replica.applier import WorkingRows
from stompkit.replica.engine._core import Core
from stompkit.replica.engine._facts import Page, PageWant
from stompkit.replica.engine._peers import Peers
from stompkit.replica.engine._terms import Peer
from stompkit.replica.messages import MessageProblem
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
from stompkit.replication.values import row_from_json, row_to_json

__all__ = ["Snapshots", "row_item"]

_BOOTSTRAP: Final = "bootstrap"
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_DECODER: Final = msgspec.json.Decoder(tuple[str, dict[str, Any], bytes, dict[str, int]])


def row_item(record: RowRecord, more: Vector) -> bytes:
    """A row's state as an item of a page; ``more`` is what it has beside the page's vector."""
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
        raise MessageProblem(f"a row of a page can't be read: {error}") from None
    record = RowRecord(id=row_id(table, made), table=table, key=made, state=state, is_live=False)
    return record, more


class Snapshots:
    """The taking side; where it stands is in the store, so that it goes on after a restart."""

    def __init__(self, core: Core, peers: Peers) -> None:
        """Take nothing yet."""
        self._core = core
        self._peers = peers
        #: ``None``: no snapshot is taken. Else ``after`` and, from the second page on, ``base``,
        #: ``clocks``, ``heads``, ``hlc``.
        self._state: dict[str, Any] | None = None
        self._number = core.chance.getrandbits(40)
        self._peer = ""
        self._until_s = 0.0
        self._has_pages = False

    def load(self, state: dict[str, Any] | None, *, has_pages: bool) -> None:
        """Go on where the process before has ended."""
        self._state = state
        self._has_pages = has_pages

    def look(self, reader: Reader) -> None:
        """Begin where another process of this node has said so."""
        state: dict[str, Any] | None = None if self.is_running else reader.meta(_BOOTSTRAP)
        if state is not None:
            self.load(state, has_pages=True)

    @property
    def is_running(self) -> bool:
        """Whether a snapshot is being taken."""
        return self._state is not None

    def begin(self, tx: Tx) -> dict[str, Any]:
        """Have one taken; what this gives is for :meth:`load`, when it is committed."""
        state: dict[str, Any] = {"after": ""}
        tx.set_meta(_BOOTSTRAP, state)
        return state

    def disconnected(self) -> None:
        """Whoever was asked may not answer."""
        self._peer = ""

    def poll(self, now: float) -> None:
        """Ask for the next page."""
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
            # What the first page lacks the whole snapshot lacks.
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
        """When :meth:`poll` has something to do."""
        if self._state is None:
            return None
        if self._peer:
            return self._until_s
        # Not later than that whenever it is asked: it would never come.
        times = [each.useless_until_s for each in self._able()]
        return max(now, min(times)) if times else None

    def _able(self) -> list[Peer]:
        """Nodes that can be asked for the next page."""
        state = self._state or {}
        return [
            each
            for each in self._peers.reachable(self._core.connected)
            if not each.only_sends
            and dominates(each.vector, state.get("base", {}))
            and each.facts.get("selection", "") == self._core.settings.selection
        ]

    def _gain(self, peer: Peer) -> int:
        """How many changesets a node has that this one lacks."""
        return count(missing(self._core.vector, peer.vector))

    def expects(self, page: Page) -> bool:
        """Whether that page was asked for."""
        return (
            self._state is not None
            and page.number == self._number
            and page.after == self._state["after"]
            and dominates(page.vector, self._state.get("base", {}))
        )

    def take(self, tx: Tx, page: Page, items: list[bytes]) -> dict[str, Any] | None:
        """Merge a page; gives the new state for :meth:`load`, which is ``None`` after the last.

        Raises :class:`~stompkit.replica.messages.MessageProblem`.
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
            # A row that the other node does not have any more, or that only this one has.
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
        """Have the vector that the first page had, and more where this node had more."""
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
        """A page is committed."""
        self._state = state
        self._peer = ""
        self._has_pages = True

    def clear(self, tx: Tx) -> bool:
        """Forget which page rows came with, when all that the pages had is applied."""
        if not self._has_pages or self._state is not None:
            return False
        vector = tx.vector()
        if not all(dominates(vector, each) for each in tx.page_vectors().values()):
            return False
        tx.clear_pages()
        return True

    def cleared(self) -> None:
        """That is committed."""
        self._has_pages = False
