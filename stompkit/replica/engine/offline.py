"""Operations on a replica while this process runs no engine."""

from __future__ import annotations

import random
import time
from typing import Any, Final

from sqlalchemy import inspect

from stompkit.replica.applier import Applier
from stompkit.replica.engine import EngineSettings, Outgoing, Status
from stompkit.replica.engine._core import Core
from stompkit.replica.engine._peers import Peers
from stompkit.replica.engine._snapshots import Snapshots
from stompkit.replica.engine._status import status_of
from stompkit.replica.nodes import IdentityError, Node, known_node
from stompkit.replica.store import Store

__all__ = ["OfflineReplica", "node_of"]


class OfflineReplica:
    """The stored state of a replica; reading it begins no session."""

    def __init__(self, store: Store, applier: Applier, settings: EngineSettings) -> None:
        """Load the state; raises ReplicaStoreError, and IdentityError without an identity."""
        core = Core(
            store,
            applier,
            settings,
            wall=time.time,
            monotonic=time.monotonic,
            chance=random.Random(),
            send=_nowhere,
            signer=None,
            trace=_unseen,
        )
        self._core: Final = core
        self._peers: Final = Peers(core)
        self._snapshots: Final = Snapshots(core, self._peers)
        core.node = node_of(store)
        with store.reading() as reader:
            core.vector = reader.vector()
            core.session = next((name for name, _ in reversed(reader.sessions())), "")
            self._peers.load(reader)
            self._snapshots.load(reader.meta("bootstrap"), has_pages=bool(reader.page_vectors()))

    def status(self) -> Status:
        """Return the current status."""
        return status_of(self._core, self._peers, self._snapshots, [])

    def stable(self) -> dict[str, int]:
        """Return the version vector that all known nodes have reached."""
        return self._peers.stable(self._core.vector)

    def forget(self, origin: str) -> None:
        """Stop waiting for a node; raises LookupError."""
        with self._core.store.transaction() as tx:
            self._peers.forget(tx, origin)

    def bootstrap(self) -> None:
        """Make the next engine take a snapshot from another node."""
        with self._core.store.transaction() as tx:
            self._snapshots.begin(tx)


def node_of(store: Store) -> Node:
    """Return the identity of a replica's database; raises IdentityError if it has none."""
    node = None
    # The tables may not exist yet.
    if inspect(store.engine).has_table(store.metadata.sorted_tables[0].name):
        with store.reading() as reader:
            node = known_node(reader)
    if node is None:
        raise IdentityError("this database is no replica yet: call Replica.create() first")
    return node


def _nowhere(outgoing: Outgoing) -> None:
    raise AssertionError(f"nobody is connected who could be sent {outgoing}")


def _unseen(step: str, facts: dict[str, Any]) -> None:
    """Ignore a trace event."""
