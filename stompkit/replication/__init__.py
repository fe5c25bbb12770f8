"""Replication: changes of databases, carried over a broker to other stores.

What is replicated is a :class:`Changeset`, all that one transaction has changed; :func:`packets`
puts it into STOMP frames, and a :class:`Reassembler` has it back.
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
