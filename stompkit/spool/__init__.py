"""A durable log of messages between a broker and readers that read by ordinal.

A queue forgets acknowledged messages, so they cannot be read again. A spool keeps messages on disk
under ordinals, which number the messages of a partition from 0. Appended messages are synced before
they are acknowledged. Readers can return to any ordinal that is still retained. Messages that a
broker redelivers are dropped. The guide about spools describes the files.
"""

from __future__ import annotations

from stompkit._common.moved import renamed
from stompkit.spool._errors import (
    BrokenSpoolError,
    DataLostError,
    OtherSpoolError,
    SpoolError,
    SpoolInUseError,
    SpoolUnavailableError,
)
from stompkit.spool._reading import SpoolReader
from stompkit.spool._write_access import is_in_use
from stompkit.spool.address import ServerAccess
from stompkit.spool.log import SpoolWriter
from stompkit.spool.segments.blocks import Block, Headers, Texts
from stompkit.spool.segments.records import Record, partition_of

__all__ = [
    "Block",
    "BrokenSpoolError",
    "DataLostError",
    "Headers",
    "OtherSpoolError",
    "Record",
    "ServerAccess",
    "SpoolError",
    "SpoolInUseError",
    "SpoolReader",
    "SpoolUnavailableError",
    "SpoolWriter",
    "Texts",
    "is_in_use",
    "partition_of",
]

renamed(
    __name__,
    BrokenSpool="BrokenSpoolError",
    DataLost="DataLostError",
    OtherSpool="OtherSpoolError",
    SpoolInUse="SpoolInUseError",
    SpoolProblem="SpoolError",
)
