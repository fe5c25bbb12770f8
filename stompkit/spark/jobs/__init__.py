"""Pipelines that run by themselves, as a file describes them: what ``stompkit pipeline`` runs.

::

    from stompkit.spark.jobs import Pipeline, load

    Pipeline(load("shop.toml"), "replicate").run()

That is also what a script for ``spark-submit`` has.

Each name is imported when it is asked for: to read and check a file needs no PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompkit._common.lazy import imported

if TYPE_CHECKING:
    from stompkit.spark.jobs.running import Pipeline, Progress
    from stompkit.spark.jobs.settings import JOBS, JobName, PipelineProblem, PipelineSettings, load

__all__ = ["JOBS", "JobName", "Pipeline", "PipelineProblem", "PipelineSettings", "Progress", "load"]

#: Where in this package each name is.
_MODULES = {
    "JOBS": "settings",
    "JobName": "settings",
    "Pipeline": "running",
    "PipelineProblem": "settings",
    "PipelineSettings": "settings",
    "Progress": "running",
    "load": "settings",
}


def __getattr__(name: str) -> Any:
    return imported(__name__, _MODULES, name)
