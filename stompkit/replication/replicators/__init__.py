"""Replicators: callbacks that are called with the keys of rows that have changed.

:class:`QueueReplicator` calls them in worker processes, :class:`RqReplicator` in threads, to put
the keys into a job queue. See :mod:`~stompkit.replication.replicators.messages` for how keys are
carried.
"""

from stompkit.replication.replicators._runners import WorkerUnusable
from stompkit.replication.replicators._terms import (
    DeadLetter,
    LaneStats,
    ReplicatorStats,
    ReplicatorStopped,
    Unfinished,
)
from stompkit.replication.replicators.queue import QueueReplicator
from stompkit.replication.replicators.ring import HashRing
from stompkit.replication.replicators.rq import RqReplicator

__all__ = [
    "DeadLetter",
    "HashRing",
    "LaneStats",
    "QueueReplicator",
    "ReplicatorStats",
    "ReplicatorStopped",
    "RqReplicator",
    "Unfinished",
    "WorkerUnusable",
]
