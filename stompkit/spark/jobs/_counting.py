"""What the job *analytics* counts: one aggregation by minutes, whose state Spark keeps.

A batch of that says what minutes have now, of each table and of all together. Spark leaves out what
is behind the watermark, by whole minutes, and does not tell what. So the batch's own changes are
counted once more, by themselves: a minute of a table that has some, and is not among those that
Spark has told, is late. It is known exactly then which ones were left out, and how many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stompkit.replication.events import Action
from stompkit.spark._changes import UNREADABLE

__all__ = ["OPERATIONS", "Counted", "Lag", "counted", "query"]

#: What changes there are; ``unreadable`` are messages that are no changesets.
OPERATIONS: Final = (*get_args(Action), UNREADABLE)
#: How many keys are kept apart for a minute of a table. Where there are more, the counts of the
#: most frequent ones may be too high by some hundredths of a percent of its changes.
_KEYS_KEPT: Final = 1000
#: How exactly percentiles are told: to a ten thousandth of the number of changes.
_ACCURACY: Final = 10_000
_ALL: Final = "is_all"


class Lag(NamedTuple):
    """How long changes were on their way, in seconds; ``None`` where that is not known."""

    changes: int
    #: From the source's commit to the spool.
    received_median_s: float | None
    received_p95_s: float | None
    received_max_s: float | None
    #: From the spool to the batch that has counted them.
    read_median_s: float | None
    read_p95_s: float | None
    read_max_s: float | None


@dataclass
class Counted:
    """What a batch says. Minutes are their first seconds, since 1970."""

    #: How many changes a minute of a table has, by operation, with all batches so far.
    changes: dict[tuple[int, str], dict[str, int]] = field(default_factory=dict)
    #: Its most frequent keys, each with how often it was there.
    keys: dict[tuple[int, str], list[tuple[str, int]]] = field(default_factory=dict)
    lag: dict[int, Lag] = field(default_factory=dict)
    #: What came too late for that, by minute, table and operation: of what is new alone.
    late: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    #: The last ordinal of the batch, by partition.
    ordinals: dict[int, int] = field(default_factory=dict)
    #: How many changes the batch has that are new.
    total: int = 0

    def minutes(self) -> set[int]:
        """The minutes that are other than before."""
        return {minute for minute, _ in self.changes} | {each[0] for each in self.late}


def query(changes: DataFrame, watermark_s: float, top_keys: int) -> DataFrame:
    """The query, for the output mode ``update``, over a stream with the payload ``changeset``.

    A change is of the minute in which it was committed, or without that time received. What claims
    to be committed after it was received is of that one, too: else one wrong clock would have the
    watermark make all others late.
    """
    received = F.col("_received")
    lag = received.cast("double") - F.col("committed").cast("double")
    rows = changes.select(
        _at().alias("at"),
        _table().alias("table_name"),
        "operation",
        F.when(F.col("key") != "{}", F.col("key")).alias("row_key"),
        lag.alias("received_s"),
        # The time of the batch, which is in the checkpoint: the same when it comes again.
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
    """Minutes of tables, and of all tables."""
    # A row counts twice: for its table, and for all.
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
    """Run the query for a batch; gives what it says.

    ``own`` are the changes of the batch that are new, if there are any, and ``ordinals`` those of
    the last messages of the batch, by partition.
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
