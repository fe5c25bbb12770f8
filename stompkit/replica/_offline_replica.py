"""What can be said of a replica, and done with it, while this process runs no engine."""

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
from stompkit.replica.nodes import IdentityProblem, Node, known_node
from stompkit.replica.store import Store

__all__ = ["OfflineReplica", "node_of"]


class OfflineReplica:
    """The state of a replica as it is in its store; nothing here begins a session."""

    def __init__(self, store: Store, applier: Applier, settings: EngineSettings) -> None:
        """Read it; raises IdentityProblem for a database that is no replica, and StoreProblem."""
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
        """How things are."""
        return status_of(self._core, self._peers, self._snapshots, [])

    def stable(self) -> dict[str, int]:
        """What every node is known to have."""
        return self._peers.stable(self._core.vector)

    def forget(self, origin: str) -> None:
        """Do not wait for a node any more; raises LookupError."""
        with self._core.store.transaction() as tx:
            self._peers.forget(tx, origin)

    def bootstrap(self) -> None:
        """Have the next engine take another node's state."""
        with self._core.store.transaction() as tx:
            self._snapshots.begin(tx)


def node_of(store: Store) -> Node:
    """The replica that a database is; raises IdentityProblem where it is none."""
    node = None
    # There may be no tables yet.
    if inspect(store.engine).has_table(store.metadata.sorted_tables[0].name):
        with store.reading() as reader:
            node = known_node(reader)
    if node is None:
        raise IdentityProblem("this database is no replica yet: call Replica.create() first")
    return node


def _nowhere(outgoing: Outgoing) -> None:
    raise AssertionError(f"nobody is connected who could be sent {outgoing}")


def _unseen(step: str, facts: dict[str, Any]) -> None:
    """Nobody looks."""
