"""Settings of pipelines from TOML files, with a table for each part.

::

    name = "shop"

    [source]
    spool = "/var/spool/shop"

    [target]
    url = "env:SHOP_COPY"

    [events]
    path = "/var/lib/shop/events"

The job *replicate* needs ``[target]``, the job *events* ``[events]``, the job *analytics*
``[analytics]``; a file may contain all of them.
"""

from __future__ import annotations

from stompkit._common.moved import renamed
from stompkit.spark.jobs.settings.extras import LibraryMissingError, advice, unusable
from stompkit.spark.jobs.settings.parsing import load, parse
from stompkit.spark.jobs.settings.pipeline import JOBS, JobName, PipelineSettings
from stompkit.spark.jobs.settings.tables import (
    AnalyticsSettings,
    ApplySettings,
    EventsSettings,
    MetricsSettings,
    SparkSettings,
    TargetSettings,
    VerifySettings,
)
from stompkit.spark.jobs.settings.values import PipelineError, life, seconds

__all__ = [
    "JOBS",
    "AnalyticsSettings",
    "ApplySettings",
    "EventsSettings",
    "JobName",
    "LibraryMissingError",
    "MetricsSettings",
    "PipelineError",
    "PipelineSettings",
    "SparkSettings",
    "TargetSettings",
    "VerifySettings",
    "advice",
    "life",
    "load",
    "parse",
    "seconds",
    "unusable",
]

renamed(
    __name__,
    PipelineProblem="PipelineError",
)
