"""Targets of pipelines by URL: databases, and tables in files."""

from __future__ import annotations

from typing import Any

from stompkit._common.moved import renamed
from stompkit.spark.targets.base import (
    Committed,
    Job,
    Lacking,
    NewColumn,
    RejectedChangeError,
    Staged,
    StagingLostError,
    Target,
)

__all__ = [
    "Committed",
    "Job",
    "Lacking",
    "NewColumn",
    "RejectedChangeError",
    "Staged",
    "StagingLostError",
    "Target",
    "open_target",
]


def open_target(url: str, **options: Any) -> Target:
    """Return the target of a URL, such as ``postgresql://USER@HOST/DATABASE``.

    Other schemes are ``sqlite:///copy.sqlite``, ``mysql://`` and ``mariadb://``;
    ``postgresql+psycopg://`` and similar schemes also name the driver. ``delta:///FOLDER``,
    ``delta+s3://BUCKET/PATH`` and similar URLs are Delta tables, and ``parquet:///FOLDER`` is
    Parquet files. Options are those of :class:`~stompkit.spark.targets.sql.SqlTarget`,
    :class:`~stompkit.spark.targets.delta.DeltaTarget` and
    :class:`~stompkit.spark.targets.parquet.ParquetTarget`. Raises ``ValueError`` for any other URL,
    and ``ModuleNotFoundError`` if the extra ``sql`` or ``delta`` is not installed.
    """
    kind = url.partition("://")[0]
    if kind == "parquet":
        from stompkit.spark.targets.parquet import ParquetTarget

        return ParquetTarget(url, **options)
    if kind.partition("+")[0] == "delta":
        from stompkit.spark.targets.delta import DeltaTarget

        return DeltaTarget(url, **options)
    from stompkit.spark.targets.sql import SqlTarget

    return SqlTarget(url, **options)


renamed(
    __name__,
    StagingLost="StagingLostError",
)
