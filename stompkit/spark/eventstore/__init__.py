"""An event store in a folder of Parquet files, on one machine or with Spark. Requires ``spark``."""

from __future__ import annotations

from stompkit._common.moved import renamed
from stompkit.spark.eventstore.files import BrokenStoreError
from stompkit.spark.eventstore.maintenance import Compacted, Stored
from stompkit.spark.eventstore.store import SparkEventStore

__all__ = ["BrokenStoreError", "Compacted", "SparkEventStore", "Stored"]

renamed(
    __name__,
    BrokenStore="BrokenStoreError",
)
