"""Forwarding of new commits to the channels that they did not come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from stompkit.replica.engine._announcing import Announcing
from stompkit.replica.engine._answers import changes_message
from stompkit.replica.engine._core import Core
from stompkit.replica.engine._peers import Peers
from stompkit.replica.engine._snapshots import Snapshots
from stompkit.replica.store import ChangesetRecord, Reader

__all__ = ["Forwarding"]

#: Maximum number of local changesets to send unasked; nodes that lack more request them.
_MOST_FRESH: Final = 500


class Forwarding:
    """Sends new changesets, of this node and of other channels."""

    def __init__(
        self,
        core: Core,
        peers: Peers,
        announcing: Announcing,
        snapshots: Snapshots,
        refresh: Callable[[Reader], None],
    ) -> None:
        """Call *refresh* with the store's state whenever it is read."""
        self._core = core
        self._peers = peers
        self._announcing = announcing
        self._snapshots = snapshots
        self._refresh = refresh
        #: Last position that was forwarded, and the channel on which each changeset arrived.
        self._position = 0
        self._arrived_on: dict[int, int] = {}
        self.may_have_more = True
        """True if there may be commits that were not forwarded yet."""

    def open(self, reader: Reader) -> None:
        """Begin after the changesets that the store has."""
        self._position = reader.last_position()

    def arrived(self, records: Iterable[ChangesetRecord], port: int) -> None:
        """Note the channel from which changesets were applied."""
        for record in records:
            self._arrived_on[record.position] = port
            self.may_have_more = True

    def send_fresh(self) -> None:
        """Forward new commits to the channels that they did not come from."""
        core = self._core
        with core.store.reading() as reader:
            last = reader.last_position()
            records: list[ChangesetRecord] = []
            if core.connected and last - self._position <= _MOST_FRESH:
                records = reader.changesets(after=self._position)
            self._refresh(reader)
            self._snapshots.look(reader)
            if self._peers.look(reader):
                self._announcing.changed()
            has_problems = last > self._position and bool(reader.with_problems(limit=1))
        for port in sorted(core.connected):
            group: list[ChangesetRecord] = []
            size = 0
            for record in records:
                if self._arrived_on.get(record.position) == port or record.body is None:
                    continue
                if group and size + record.size > core.settings.max_body_bytes * 3 // 4:
                    core.send(port, changes_message(core.origin, group), persistent=True)
                    group, size = [], 0
                group.append(record)
                size += record.size
            if group:
                core.send(port, changes_message(core.origin, group), persistent=True)
        self._position = max(self._position, last)
        self.may_have_more = False
        if has_problems:
            # The obstacle to a refused row may have gone.
            with core.store.transaction() as tx:
                core.applier.heal(tx)
        self._arrived_on = {p: port for p, port in self._arrived_on.items() if p > self._position}
