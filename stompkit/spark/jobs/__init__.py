"""Pipelines defined by a file, as run by ``stompkit pipeline``.

::

    from stompkit.spark.jobs import Pipeline, load

    Pipeline(load("shop.toml"), "replicate").run()

A script for ``spark-submit`` contains the same lines.

Names are imported lazily: reading and checking a file does not require PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompkit._common.lazy import imported
from stompkit._common.moved import moved, renamed

if TYPE_CHECKING:
    from stompkit.spark.jobs.running import Pipeline, Progress
    from stompkit.spark.jobs.settings import JOBS, JobName, PipelineError, PipelineSettings, load

__all__ = ["JOBS", "JobName", "Pipeline", "PipelineError", "PipelineSettings", "Progress", "load"]

#: Module of each public name.
_MODULES = {
    "JOBS": "settings",
    "JobName": "settings",
    "Pipeline": "running",
    "PipelineError": "settings",
    "PipelineSettings": "settings",
    "Progress": "running",
    "load": "settings",
}


def __getattr__(name: str) -> Any:
    return imported(__name__, _MODULES, name)


renamed(
    __name__,
    PipelineProblem="PipelineError",
)

moved(__name__, {"looking": "stompkit.spark.jobs.status"})
