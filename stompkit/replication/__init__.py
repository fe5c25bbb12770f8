"""Replication: database changes, sent over a broker to other stores.

The unit of replication is a :class:`Changeset`: all changes of one transaction. :func:`packets`
splits it into STOMP frames, and a :class:`Reassembler` joins them again.
"""

from stompkit._common.moved import renamed
from stompkit.replication.events import (
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
from stompkit.replication.frames import Packet, Reassembler, packets
from stompkit.replication.values import InvalidValueError, Row, Value

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
