"""A durable log between a broker and whoever reads by number.

A queue forgets what was acknowledged, so nobody can read it twice. A spool keeps messages on disk
under ordinals, which count the messages of a partition from 0: what has been appended is synced
before it is acknowledged, readers come back to any ordinal for as long as it is kept, and what a
broker delivers again is dropped. Files are described in the guide about spools.
"""

from __future__ import annotations

from stompkit.spool._blocks import Block, Headers, Texts
from stompkit.spool._problems import BrokenSpool, DataLost, OtherSpool, SpoolInUse, SpoolProblem
from stompkit.spool._reading import SpoolReader
from stompkit.spool._records import Record, partition_of
from stompkit.spool._write_access import is_in_use
from stompkit.spool.log import SpoolWriter

__all__ = [
    "Block",
    "BrokenSpool",
    "DataLost",
    "Headers",
    "OtherSpool",
    "Record",
    "SpoolInUse",
    "SpoolProblem",
    "SpoolReader",
    "SpoolWriter",
    "Texts",
    "is_in_use",
    "partition_of",
]
