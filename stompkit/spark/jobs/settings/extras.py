"""Errors for libraries that jobs and targets need, and that are not installed."""

from __future__ import annotations

from stompkit._common.lazy import extra_advice
from stompkit.spark.jobs.settings.values import PipelineError

__all__ = ["LibraryMissingError", "advice", "unusable"]


class LibraryMissingError(PipelineError):
    """A library that the settings need is not installed; ``str()`` names its extra."""


def advice(error: ModuleNotFoundError) -> str:
    """Return what to install; raises the error itself if no extra has the library."""
    found = extra_advice(error)
    if not found:
        raise error
    return found


def unusable(setting: str, error: ValueError) -> PipelineError:
    """Return the error of a setting with a URL; it can lack the library of its driver."""
    if found := extra_advice(error.__cause__):
        return LibraryMissingError(f"{setting}: {found}")
    return PipelineError(f"{setting}: {error}")
