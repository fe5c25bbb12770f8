"""Replication: database changes, sent over a broker to other stores.

The unit of replication is a :class:`Changeset`: all changes of one transaction. :func:`packets`
splits it into STOMP frames, and a :class:`Reassembler` joins them again.
"""

from stompkit.replication.events import (
    Action,
    Changeset,
    EventProblem,
    RowChange,
    Source,
    decode,
    encode,
    make_changeset,
    schema,
)
from stompkit.replication.frames import Packet, Reassembler, packets
from stompkit.replication.values import Row, Value, ValueProblem

__all__ = [
    "Action",
    "Changeset",
    "EventProblem",
    "Packet",
    "Reassembler",
    "Row",
    "RowChange",
    "Source",
    "Value",
    "ValueProblem",
    "decode",
    "encode",
    "make_changeset",
    "packets",
    "schema",
]
