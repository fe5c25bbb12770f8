"""Reading of settings from TOML files, with a report of all errors."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from stompkit._common.addresses import has_scheme
from stompkit._common.metrics import parse_address
from stompkit._common.settings import ConfigurationError, read_toml
from stompkit._common.spelling import suggestion
from stompkit.replication.model.tables import Tables
from stompkit.spark.java import SparkError
from stompkit.spark.jobs.settings.decoding import convert
from stompkit.spark.jobs.settings.pipeline import JOBS, PipelineSettings
from stompkit.spark.jobs.settings.values import (
    PipelineError,
    life,
    options_of,
    resolved,
    seconds,
)
from stompkit.spark.stream.options import SinkOptions, SourceOptions

__all__ = ["load", "parse"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
#: Source options that concern batch reads, and those that a job sets.
_NOT_OF_JOBS: Final = {
    "endingoffsets": "a job does not end somewhere; `--once` ends it where the spool does",
    "endingtimestamp": "a job does not end somewhere; `--once` ends it where the spool does",
    "payload": "a job reads changesets; leave it out",
    "pushfilters": "this is for batches; leave it out",
}


def load(path: str | os.PathLike[str]) -> PipelineSettings:
    """Read a file; raises :class:`PipelineError` with all of its errors."""
    try:
        return parse(read_toml(path))
    except ConfigurationError as error:
        raise PipelineError(str(error)) from None
    except PipelineError as problem:
        lines = [f"{path}: {line}" for line in str(problem).splitlines()]
        raise PipelineError("\n".join(lines)) from None


def parse(found: Mapping[str, Any]) -> PipelineSettings:
    """Parse decoded settings; errors have the form ``PLACE: error``."""
    mistakes: list[str] = []
    settings = convert(found, PipelineSettings, mistakes)
    name = found.get("name")
    if isinstance(name, str) and not _NAME.fullmatch(name):
        mistakes.append("name: this is 1 to 80 letters, digits, dots, hyphens and underscores")
    _try("state-dir", _check_path, found.get("state-dir"), mistakes)
    for setting in ("trigger", "retry-for"):
        _try(setting, seconds, found.get(setting), mistakes)
    source, letters, events = (found.get(each) for each in ("source", "dead-letter", "events"))
    if isinstance(source, dict):
        mistakes += [
            f"source.{option}: {_NOT_OF_JOBS[option.lower()]}"
            for option in source
            if option.lower() in _NOT_OF_JOBS
        ]
        _try("source", lambda each: SourceOptions.parse(options_of(each)), source, mistakes)
    if isinstance(letters, dict) and letters:
        _try("dead-letter", _check_dead_letter, letters, mistakes)
    if isinstance(events, dict):
        _try("events.path", _check_path, events.get("path"), mistakes)
        _try("events.ttl", life, events.get("ttl"), mistakes)
        _try("events.keep-history", life, events.get("keep-history"), mistakes)
    target = found.get("target")
    if isinstance(target, dict):
        _try("target.url", resolved, target.get("url"), mistakes)
        _try("target.keep", life, target.get("keep"), mistakes)
    spark = found.get("spark")
    if isinstance(spark, dict):
        _try("spark.master", _check_master, spark.get("master"), mistakes)
    verify = found.get("verify")
    if isinstance(verify, dict):
        _try("verify.source", resolved, verify.get("source"), mistakes)
        _try("verify.settle", seconds, verify.get("settle"), mistakes)
        _try("verify.masks", _check_masks, verify.get("masks"), mistakes)
    analytics, metrics = found.get("analytics"), found.get("metrics")
    if isinstance(analytics, dict):
        _check_analytics(analytics, mistakes)
    if isinstance(metrics, dict):
        _try("metrics.listen", _check_addresses, metrics.get("listen"), mistakes)
    if settings is None or mistakes:
        raise PipelineError("\n".join(mistakes))
    if not settings.jobs():
        raise PipelineError(
            "there is nothing to do: this needs a table [target], [events] or [analytics]"
        )
    ways = [settings.apply.on_problem, settings.events.on_problem if settings.events else "stop"]
    if settings.dead_letter and "dead-letter" not in ways:
        raise PipelineError(
            'dead-letter: there are dead letters only with on-problem = "dead-letter" in [apply]'
            " or in [events]"
        )
    return settings


def _try(place: str, check: Any, found: Any, mistakes: list[str]) -> None:
    """Record the error of a check; a wrong type is recorded elsewhere."""
    if not isinstance(found, (str, dict)):
        return
    try:
        check(found)
    except (PipelineError, SparkError) as problem:
        mistakes.append(f"{place}: {problem}")


def _check_dead_letter(found: Mapping[str, Any]) -> None:
    if not SinkOptions.parse(options_of(found)).destination:
        raise PipelineError("the option destination is needed")


def _check_analytics(found: Mapping[str, Any], mistakes: list[str]) -> None:
    for setting in ("watermark", "report-span"):
        _try(f"analytics.{setting}", seconds, found.get(setting), mistakes)
    _try("analytics.path", _check_path, found.get("path"), mistakes)
    _try("analytics.url", resolved, found.get("url"), mistakes)
    if bool(found.get("path")) == bool(found.get("url")):
        mistakes.append(
            "analytics: this needs a path, a folder for Parquet files, or a url, that of a"
            " database, and not both"
        )


def _check_path(found: str) -> None:
    if has_scheme(found):
        raise PipelineError("this is a folder of the file system, and not a URL")


def _check_master(found: str) -> None:
    if found.startswith("sc:"):
        raise PipelineError(
            "a job drives Spark from its own process, and cannot use a Spark Connect server: name"
            " the cluster itself, as in spark://HOST:7077"
        )


def _check_masks(found: str | Mapping[str, object]) -> None:
    if isinstance(found, dict) and all(isinstance(each, str) for each in found.values()):
        try:
            Tables(masks={pattern: resolved(mask) for pattern, mask in found.items()})
        except ValueError as error:
            raise PipelineError(str(error)) from None


def _check_addresses(found: str | Mapping[str, object]) -> None:
    if isinstance(found, str):
        _check_address(found)
        return
    for job, address in found.items():
        if job not in JOBS:
            raise PipelineError(f"there is no job {job!r}; {suggestion(job, JOBS)}")
        if isinstance(address, str):
            _check_address(address)


def _check_address(found: str) -> None:
    try:
        parse_address(found)
    except ValueError as error:
        raise PipelineError(str(error)) from None
