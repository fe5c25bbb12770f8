"""Pipelines that run by themselves, as a file describes them: what ``stompkit pipeline`` runs.

::

    from stompkit.spark.jobs import Pipeline, load

    Pipeline(load("shop.toml"), "replicate").run()

That is also what a script for ``spark-submit`` has.
"""

from __future__ import annotations

from stompkit.spark.jobs.running import Pipeline, Progress
from stompkit.spark.jobs.settings import JOBS, JobName, PipelineProblem, PipelineSettings, load

__all__ = [
    "JOBS",
    "JobName",
    "Pipeline",
    "PipelineProblem",
    "PipelineSettings",
    "Progress",
    "load",
]
