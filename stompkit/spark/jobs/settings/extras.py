"""Extras with the libraries that jobs and targets need."""

from __future__ import annotations

from typing import Final

from stompkit.spark.jobs.settings.values import PipelineError

__all__ = ["LibraryMissingError", "advice", "unusable"]

#: Extras by their libraries.
_EXTRAS: Final = {
    "pyspark": "spark",
    "py4j": "spark",
    "numpy": "spark",
    "pyarrow": "spark",
    "sqlalchemy": "sql",
    "psycopg": "postgresql",
    "pymysql": "mysql",
    "deltalake": "delta",
}


class LibraryMissingError(PipelineError):
    """A library that the settings need is not installed; ``str()`` names its extra."""


def advice(error: ModuleNotFoundError) -> str:
    """Return what to install; raises the error itself if no extra has the library."""
    library = _library(error)
    if library not in _EXTRAS:
        raise error
    return f"this needs {library}: pip install 'stompkit[{_EXTRAS[library]}]'"


def unusable(setting: str, error: ValueError) -> PipelineError:
    """Return the error of a setting with a URL; it can lack the library of its driver."""
    cause = error.__cause__
    if isinstance(cause, ModuleNotFoundError) and _library(cause) in _EXTRAS:
        return LibraryMissingError(f"{setting}: {advice(cause)}")
    return PipelineError(f"{setting}: {error}")


def _library(error: ModuleNotFoundError) -> str:
    return (error.name or "").partition(".")[0]
