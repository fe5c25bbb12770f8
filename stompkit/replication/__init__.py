"""Replication: database changes, sent over a broker to other stores.

The unit of replication is a :class:`Changeset`: all changes of one transaction. :func:`packets`
splits it into STOMP frames, and a :class:`Reassembler` joins them again.

* ``model``: changesets, values, selected tables, signals and frames;
* ``sources``: databases whose changes are published, and ``sinks``, where they are applied;
* ``consumer``: from a broker to a sink, in order and exactly once;
* ``jobs``: from one URL to another; ``workers``: callbacks for the keys of changed rows;
* ``eventstore``: a history of changes by key;
* ``sql``: tables, values and statements of target databases.
"""

from stompkit._common.moved import moved, renamed
from stompkit.replication.model.events import (
    Action,
    Changeset,
    EventError,
    RowChange,
    Source,
    decode,
    encode,
    make_changeset,
    schema,
)
from stompkit.replication.model.frames import Packet, Reassembler, packets
from stompkit.replication.model.values import InvalidValueError, Row, Value

__all__ = [
    "Action",
    "Changeset",
    "EventError",
    "InvalidValueError",
    "Packet",
    "Reassembler",
    "Row",
    "RowChange",
    "Source",
    "Value",
    "decode",
    "encode",
    "make_changeset",
    "packets",
    "schema",
]

renamed(
    __name__,
    EventProblem="EventError",
    ValueProblem="InvalidValueError",
)

moved(
    __name__,
    {
        "events": "stompkit.replication.model.events",
        "eventsourcing": "stompkit.replication.eventstore",
        "eventsourcing.publisher": "stompkit.replication.eventstore.source",
        "eventsourcing.redis_sub": "stompkit.replication.eventstore.redis_sink",
        "eventsourcing.subscriber": "stompkit.replication.eventstore.sink",
        "feeder": "stompkit.replication.jobs.feeder",
        "frames": "stompkit.replication.model.frames",
        "offsets": "stompkit.replication.sources.offsets",
        "publication": "stompkit.replication.sources.publication",
        "publishers": "stompkit.replication.sources",
        "replica": "stompkit.replica",
        "replicators": "stompkit.replication.workers",
        "signals": "stompkit.replication.model.signals",
        "sinks.sql.parts": "stompkit.replication.sql",
        "subscribers": "stompkit.replication.sinks.forwarders",
        "tables": "stompkit.replication.model.tables",
        "values": "stompkit.replication.model.values",
    },
)
