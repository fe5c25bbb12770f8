"""The tables of a pipeline's file, except for its top level."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from stompkit.spark.jobs.settings.values import resolved

__all__ = [
    "AnalyticsSettings",
    "ApplySettings",
    "EventsSettings",
    "MetricsSettings",
    "SparkSettings",
    "Table",
    "TargetSettings",
    "VerifySettings",
]


class Table(msgspec.Struct, kw_only=True, frozen=True, rename="kebab"):
    """A table of the file; names are written with hyphens."""


class TargetSettings(Table, frozen=True):
    """``[target]``: options of :func:`~stompkit.spark.targets.open_target`."""

    #: URL; ``env:NAME`` refers to a variable, ``file:PATH`` to the first line of a file.
    url: str
    create: bool = False
    evolve: bool = True
    foreign_keys: Literal["enforced", "deferred", "off"] = "deferred"
    lossy: bool = False
    schema_map: dict[str, str] = {}
    table_map: dict[str, str] = {}
    #: For Delta tables: options of the package deltalake for the store, such as its keys.
    storage_options: dict[str, str] = {}
    #: For Parquet files: time for which replaced files are kept.
    keep: str = "1h"

    def looked_up_storage_options(self) -> dict[str, str]:
        """Return ``storage_options`` with resolved references; raises :class:`PipelineError`."""
        return {name: resolved(text) for name, text in self.storage_options.items()}


class ApplySettings(Table, frozen=True):
    """``[apply]``: arguments of :func:`~stompkit.spark.apply.apply_changes`."""

    keys: list[str] | dict[str, list[str]] | None = None
    sequence_by: str = "_ordinal"
    apply_as_deletes: str = "operation = 'delete'"
    column_list: list[str] | None = None
    except_column_list: list[str] | None = None
    stored_as_scd_type: Literal[1, 2] = 1
    ignore_null_updates: bool = False
    tables: list[str] | None = None
    on_problem: Literal["stop", "dead-letter"] = "stop"


class EventsSettings(Table, frozen=True):
    """``[events]``: arguments of :class:`~stompkit.spark.eventstore.SparkEventStore`."""

    path: str
    namespace: str = "stompkit"
    #: Time for which events are kept, such as ``"90d"``, or ``"forever"``.
    ttl: str = "3d"
    #: True if whole changesets are kept, too.
    history: bool = False
    #: True if tasks send the history to the driver, so that executors need not see the path.
    through_driver: bool = False
    #: Time for which the job *compact* keeps changesets, if that is less than ``ttl``.
    keep_history: str = "forever"
    tables: list[str] | None = None
    #: Handling of messages that are not changesets; ``ignore`` skips them.
    on_problem: Literal["stop", "dead-letter", "ignore"] = "stop"


class AnalyticsSettings(Table, frozen=True):
    """``[analytics]``: storage and parameters of the results."""

    #: Folder for Parquet files.
    path: str = ""
    #: Database URL instead, as in ``[target]``.
    url: str = ""
    #: Maximum age of a change relative to the newest one, to be counted with its minute.
    watermark: str = "10m"
    #: Number of the most frequent keys stored for a minute of a table.
    top_keys: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10
    #: File for the report, an HTML page.
    report: str = ""
    #: Time span of the report.
    report_span: str = "2h"


class MetricsSettings(Table, frozen=True):
    """``[metrics]``: the endpoint for Prometheus."""

    #: ``HOST:PORT``; or that of each job, by its name.
    listen: str | dict[str, str]

    def address(self, job: str) -> str | None:
        """Return the address of a job; ``None`` if it has none."""
        return self.listen if isinstance(self.listen, str) else self.listen.get(job)


class VerifySettings(Table, frozen=True):
    """``[verify]``: the source that the job *verify* compares with the target."""

    #: Database URL, as in ``[target]``.
    source: str
    #: Tables to compare; by default those of ``[apply]``, or all tables of the source.
    tables: list[str] | None = None
    #: Masks of the publisher, by patterns of columns, as in its own settings.
    masks: dict[str, str] = {}
    #: Time to wait before differing rows are compared again.
    settle: str = "5s"


class SparkSettings(Table, frozen=True):
    """``[spark]``: the Spark session of the jobs."""

    #: By default this machine with all its processors, or the choice of ``spark-submit``.
    master: str | None = None
    config: dict[str, str] = {}
    #: True to send this stompkit to workers without an installation.
    ship: bool = False
