"""The counting query of the job *analytics*: one aggregation by minute, with its state in Spark.

A batch of the query returns the current counts of minutes, for each table and in total. Spark drops
changes behind the watermark, by whole minutes, without reporting them. Therefore the batch's own
changes are counted separately. If a minute of a table has such changes but is missing in Spark's
result, they are late. This determines exactly which changes were dropped, and how many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stompkit.replication.model.events import Action
from stompkit.spark.stream.changes import UNREADABLE

__all__ = ["OPERATIONS", "Counted", "Lag", "counted", "query"]

#: All operations; ``unreadable`` are messages that are not changesets.
OPERATIONS: Final = (*get_args(Action), UNREADABLE)
#: Maximum number of keys counted for a minute of a table. With more keys, the counts of the most
#: frequent ones may be too high by some hundredths of a percent of the changes.
_KEYS_KEPT: Final = 1000
#: Accuracy of percentiles: one ten-thousandth of the number of changes.
_ACCURACY: Final = 10_000
_ALL: Final = "is_all"


class Lag(NamedTuple):
    """Latency of changes in seconds; ``None`` if unknown."""

    changes: int
    #: From the commit in the source to the spool.
    received_median_s: float | None
    received_p95_s: float | None
    received_max_s: float | None
    #: From the spool to the batch that counted them.
    read_median_s: float | None
    read_p95_s: float | None
    read_max_s: float | None


@dataclass
class Counted:
    """Result of a batch. Minutes are identified by their first second since 1970."""

    #: Number of changes by minute and table, then by operation, including all former batches.
    changes: dict[tuple[int, str], dict[str, int]] = field(default_factory=dict)
    #: Most frequent keys by minute and table, with their counts.
    keys: dict[tuple[int, str], list[tuple[str, int]]] = field(default_factory=dict)
    lag: dict[int, Lag] = field(default_factory=dict)
    #: Late changes by minute, table and operation: new changes only.
    late: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    #: Last ordinal of the batch, by partition.
    ordinals: dict[int, int] = field(default_factory=dict)
    #: Number of new changes in the batch.
    total: int = 0

    def minutes(self) -> set[int]:
        """Return the minutes that have changed."""
        return {minute for minute, _ in self.changes} | {each[0] for each in self.late}


def query(changes: DataFrame, watermark_s: float, top_keys: int) -> DataFrame:
    """Return the query for the output mode ``update``, over a stream of changesets.

    A change belongs to the minute of its commit, or of its reception if the commit time is unknown.
    A commit time after the reception is replaced by the reception time. Otherwise one wrong clock
    would advance the watermark and make all other changes late.
    """
    received = F.col("_received")
    lag = received.cast("double") - F.col("committed").cast("double")
    rows = changes.select(
        _at().alias("at"),
        _table().alias("table_name"),
        "operation",
        F.when(F.col("key") != "{}", F.col("key")).alias("row_key"),
        lag.alias("received_s"),
        # The time of the batch from the checkpoint, which is the same after a restart.
        (F.current_timestamp().cast("double") - received.cast("double")).alias("read_s"),
    )
    return _minutes(rows.withWatermark("at", f"{round(watermark_s * 1000)} milliseconds"), top_keys)


def _at() -> Column:
    received = F.col("_received")
    return F.least(F.coalesce(F.col("committed"), received), received)


def _table() -> Column:
    name = F.concat_ws(".", F.col("schema"), F.col("table"))
    return F.when(F.col("schema") > "", name).otherwise(F.coalesce(F.col("table"), F.lit("")))


def _minutes(rows: DataFrame, top_keys: int) -> DataFrame:
    """Return the counts by minute of each table, and of all tables."""
    # A row counts twice: for its table, and for the total.
    twice = rows.withColumn(_ALL, F.explode(F.array(F.lit(False), F.lit(True))))
    name = F.when(~F.col(_ALL), F.col("table_name"))
    grouped = twice.groupBy(F.window("at", "1 minute").alias("window"), name.alias("name"))
    found = grouped.agg(
        F.count("*").alias("changes"),
        *(F.count_if(F.col("operation") == each).alias(f"n_{each}") for each in OPERATIONS),
        F.expr(
            f"approx_top_k(row_key, {top_keys}, {max(_KEYS_KEPT, 10 * top_keys)})"
            f" FILTER (WHERE NOT {_ALL} AND row_key IS NOT NULL)"
        ).alias("keys"),
        *_percentiles("received"),
        *_percentiles("read"),
    )
    return found.select(
        F.col("window.start").cast("long").alias("minute"),
        F.col("name").alias("table_name"),
        *(column for column in found.columns if column not in ("window", "name")),
    )


def _percentiles(what: str) -> tuple[Column, Column]:
    of_all = F.when(F.col(_ALL), F.col(f"{what}_s"))
    halves = F.percentile_approx(of_all, [0.5, 0.95], _ACCURACY).alias(f"{what}_percentiles")
    return halves, F.max(of_all).alias(f"{what}_max")


def counted(batch: DataFrame, own: DataFrame | None, ordinals: Mapping[int, int]) -> Counted:
    """Run the query for a batch, and return its result.

    ``own`` are the new changes of the batch, if any. ``ordinals`` are those of the batch's last
    messages, by partition.
    """
    found = Counted(ordinals=dict(ordinals))
    for row in batch.toArrow().to_pylist():
        minute, name = row["minute"], row["table_name"]
        if name is None:
            found.lag[minute] = Lag(row["changes"], *_times(row, "received"), *_times(row, "read"))
        else:
            by_operation = {each: row[f"n_{each}"] for each in OPERATIONS}
            found.changes[minute, name] = {each: n for each, n in by_operation.items() if n}
            keys = [(each["item"], each["count"]) for each in row["keys"] or ()]
            found.keys[minute, name] = sorted(keys, key=lambda each: (-each[1], each[0]))
    if own is not None:
        minute = F.window(_at(), "1 minute").start.cast("long").alias("minute")
        groups = own.groupBy(minute, _table().alias("table_name"), "operation").count()
        for row in groups.toArrow().to_pylist():
            found.total += row["count"]
            if (row["minute"], row["table_name"]) not in found.changes:
                found.late[row["minute"], row["table_name"], row["operation"]] += row["count"]
    return found


def _times(row: dict[str, Any], what: str) -> tuple[float | None, float | None, float | None]:
    median, p95 = row[f"{what}_percentiles"] or (None, None)
    return median, p95, row[f"{what}_max"]
