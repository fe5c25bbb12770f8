"""Workers: run callbacks with the keys of changed rows.

:class:`QueueReplicator` runs them in worker processes. :class:`RqReplicator` runs them in threads,
to put the keys into a job queue. See :mod:`~stompkit.replication.workers.messages` for the
message format of keys.
"""

from stompkit._common.moved import renamed
from stompkit.replication.workers._runners import WorkerUnusableError
from stompkit.replication.workers._types import (
    DeadLetter,
    ReplicatorStats,
    ReplicatorStoppedError,
    SubQueueStats,
    Unfinished,
)
from stompkit.replication.workers.queue import QueueReplicator
from stompkit.replication.workers.ring import HashRing
from stompkit.replication.workers.rq import RqReplicator

__all__ = [
    "DeadLetter",
    "HashRing",
    "QueueReplicator",
    "ReplicatorStats",
    "ReplicatorStoppedError",
    "RqReplicator",
    "SubQueueStats",
    "Unfinished",
    "WorkerUnusableError",
]

renamed(
    __name__,
    LaneStats="SubQueueStats",
    ReplicatorStopped="ReplicatorStoppedError",
    WorkerUnusable="WorkerUnusableError",
)
