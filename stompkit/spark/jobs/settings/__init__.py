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

import json
import os
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec.structs import replace

from stompkit._common.metrics import parse_address
from stompkit._common.moved import renamed
from stompkit._common.secrets import SecretError, mask, resolve
from stompkit._common.settings import ConfigurationError, read_toml
from stompkit.metrics import parse_address
from stompkit.spark.java import SparkError
from stompkit.spark.jobs.settings.decoding import convert
from stompkit.spark.stream.options import SinkOptions, SourceOptions

__all__ = [
    "JOBS",
    "AnalyticsSettings",
    "ApplySettings",
    "EventsSettings",
    "JobName",
    "MetricsSettings",
    "PipelineError",
    "PipelineSettings",
    "SparkSettings",
    "TargetSettings",
    "VerifySettings",
    "life",
    "load",
    "parse",
    "seconds",
]

JobName = Literal["replicate", "events", "analytics"]
#: The existing jobs, with descriptions.
JOBS: Final[dict[JobName, str]] = {
    "replicate": "apply changes to a database",
    "events": "store changes in an event store",
    "analytics": "count changes by the minute, and report",
}

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
#: Pattern of the names of secret storage options.
_KEY: Final = re.compile("key|secret|token|password|sas", re.IGNORECASE)
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
#: Source options that concern batch reads, and those that a job sets.
_NOT_OF_JOBS: Final = {
    "endingoffsets": "a job does not end somewhere; `--once` ends it where the spool does",
    "endingtimestamp": "a job does not end somewhere; `--once` ends it where the spool does",
    "payload": "a job reads changesets; leave it out",
    "pushfilters": "this is for batches; leave it out",
}
#: Options that may be in an environment variable, or a separate file.
_SECRET: Final = ("login", "passcode")


class PipelineError(Exception):
    """Invalid pipeline settings; ``str()`` has a line for each error."""


class _Table(msgspec.Struct, kw_only=True, frozen=True, rename="kebab"):
    """A table of the file; names are written with hyphens."""


class TargetSettings(_Table, frozen=True):
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
        return {name: _looked_up(text) for name, text in self.storage_options.items()}


class ApplySettings(_Table, frozen=True):
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


class EventsSettings(_Table, frozen=True):
    """``[events]``: arguments of :class:`~stompkit.spark.eventstore.SparkEventStore`."""

    path: str
    namespace: str = "stompkit"
    #: Time for which events are kept, such as ``"90d"``, or ``"forever"``.
    ttl: str = "3d"
    #: True if whole changesets are kept, too.
    history: bool = False
    #: Time for which the job *compact* keeps changesets, if that is less than ``ttl``.
    keep_history: str = "forever"
    tables: list[str] | None = None
    #: Handling of messages that are not changesets; ``ignore`` skips them.
    on_problem: Literal["stop", "dead-letter", "ignore"] = "stop"


class AnalyticsSettings(_Table, frozen=True):
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


class MetricsSettings(_Table, frozen=True):
    """``[metrics]``: the endpoint for Prometheus."""

    #: ``HOST:PORT``.
    listen: str


class VerifySettings(_Table, frozen=True):
    """``[verify]``: the source that the job *verify* compares with the target."""

    #: Database URL, as in ``[target]``.
    source: str
    #: Tables to compare; by default those of ``[apply]``, or all tables of the source.
    tables: list[str] | None = None
    #: Time to wait before differing rows are compared again.
    settle: str = "5s"


class SparkSettings(_Table, frozen=True):
    """``[spark]``: the Spark session of the jobs."""

    #: By default this machine with all its processors, or the choice of ``spark-submit``.
    master: str | None = None
    config: dict[str, str] = {}
    #: True to send this stompkit to workers without an installation.
    ship: bool = False


class PipelineSettings(_Table, frozen=True):
    """The settings of a pipeline."""

    #: Name of the fences, checkpoints and spool readers.
    name: str
    #: Options of the format ``stomp``, by the names that they have there.
    source: dict[str, Any]
    target: TargetSettings | None = None
    apply: ApplySettings = ApplySettings()
    #: Options of the sink ``stomp`` for dead letters.
    dead_letter: dict[str, Any] = {}
    events: EventsSettings | None = None
    analytics: AnalyticsSettings | None = None
    metrics: MetricsSettings | None = None
    verify: VerifySettings | None = None
    spark: SparkSettings = SparkSettings()
    #: Interval between the starts of batches; ``"0s"`` for no pause.
    trigger: str = "1s"
    #: Maximum time of retries while a target is unreachable.
    retry_for: str = "5m"
    #: Folder of the checkpoints, by default below ``XDG_STATE_HOME``.
    state_dir: str = ""
    #: URI of the checkpoints instead, for a cluster; the name of the job is appended.
    checkpoint: str = ""

    def folder(self) -> Path:
        """Return the folder of the pipeline's files on this machine."""
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        state = Path(self.state_dir) if self.state_dir else Path(base) / "stompkit" / "pipelines"
        return state.absolute() / self.name

    def checkpoint_of(self, job: JobName) -> str:
        """Return the location of a job's Spark checkpoint."""
        if self.checkpoint:
            return f"{self.checkpoint.rstrip('/')}/{job}"
        return str(self.folder() / job / "checkpoint")

    def source_options(self, job: JobName) -> dict[str, str]:
        """Return the options for ``spark.readStream.format("stomp")``, including secrets."""
        # The job does not pass changes through Spark: its tasks read the spool themselves.
        payload = "ranges" if job == "replicate" else "changeset"
        options = {"payload": payload, **_options(self.source)}
        if not any(name.lower() == "reader" for name in options):
            # Retention keeps messages for this reader; an empty name disables that.
            options["reader"] = f"{self.name}.{job}"
        return options

    def spool(self) -> Path:
        """Return the folder of the spool to read."""
        return SourceOptions.parse(_options(self.source)).spool

    def dead_letter_options(self) -> dict[str, str]:
        """Return the options of the sink ``stomp`` for dead letters; empty without such a sink."""
        return _options(self.dead_letter)

    def target_url(self) -> str:
        """Return the resolved URL of the target; raises :class:`PipelineError` without one."""
        if self.target is None:
            raise PipelineError("[target]: the job replicate needs this table, with its url")
        return _looked_up(self.target.url)

    def source_url(self) -> str:
        """Return the resolved URL of the source to compare; raises :class:`PipelineError`."""
        if self.verify is None:
            raise PipelineError(
                "[verify]: the job verify needs this table, with its source, or --source URL"
            )
        return _looked_up(self.verify.source)

    def analytics_url(self) -> str:
        """Return the resolved URL of the database for results; empty if there is none."""
        return _looked_up(self.analytics.url) if self.analytics is not None else ""

    def demanded_analytics(self) -> AnalyticsSettings:
        """Return ``[analytics]``; raises :class:`PipelineError` without it."""
        if self.analytics is None:
            raise PipelineError(
                "[analytics]: the job analytics needs this table, with its path or its url"
            )
        return self.analytics

    def demand(self, job: JobName) -> None:
        """Raise :class:`PipelineError` if the settings lack a requirement of the job."""
        if job == "replicate":
            self.target_url()
        elif job == "analytics":
            self.demanded_analytics()
        elif self.events is None:
            raise PipelineError("[events]: the job events needs this table, with its path")

    def with_options(
        self, job: JobName, *, report: Path | None = None, metrics: str | None = None
    ) -> PipelineSettings:
        """Return these settings with overrides from the command line.

        Raises :class:`PipelineError` for a report of a job without report.
        """
        settings = self
        if metrics is not None:
            settings = replace(settings, metrics=MetricsSettings(listen=metrics))
        if report is not None:
            if job != "analytics":
                raise PipelineError(f"the job {job} makes no report: --report is of analytics")
            given = replace(self.demanded_analytics(), report=str(report))
            settings = replace(settings, analytics=given)
        return settings

    def jobs(self) -> list[JobName]:
        """Return the jobs that the file configures."""
        found: list[JobName] = []
        if self.target is not None:
            found.append("replicate")
        if self.events is not None:
            found.append("events")
        if self.analytics is not None:
            found.append("analytics")
        return found

    def without_secrets(self, text: str) -> str:
        """Return a text without any password in these settings."""
        # Individually: a secret that cannot be resolved must not prevent the removal of the others.
        found = [
            _known(options["passcode"])
            for options in (self.source, self.dead_letter)
            if isinstance(options.get("passcode"), str)
        ]
        urls = []
        if self.target is not None:
            urls.append(self.target.url)
            options = self.target.storage_options
            found += [_known(each) for name, each in options.items() if _KEY.search(name)]
        if self.verify is not None:
            urls.append(self.verify.source)
        if self.analytics is not None:
            urls.append(self.analytics.url)
        found += [each for name, each in self.spark.config.items() if _KEY.search(name)]
        return mask(text, [*urls, *map(_known, urls)], found)


def _known(text: str) -> str:
    """Return the resolved text; empty if that fails."""
    try:
        return _looked_up(text)
    except PipelineError:
        return ""


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
    for setting in ("trigger", "retry-for"):
        _try(setting, seconds, found.get(setting), mistakes)
    source, letters, events = (found.get(each) for each in ("source", "dead-letter", "events"))
    if isinstance(source, dict):
        mistakes += [
            f"source.{option}: {_NOT_OF_JOBS[option.lower()]}"
            for option in source
            if option.lower() in _NOT_OF_JOBS
        ]
        _try("source", lambda each: SourceOptions.parse(_options(each)), source, mistakes)
    if isinstance(letters, dict) and letters:
        _try("dead-letter", _check_dead_letter, letters, mistakes)
    if isinstance(events, dict):
        _try("events.ttl", life, events.get("ttl"), mistakes)
        _try("events.keep-history", life, events.get("keep-history"), mistakes)
    target = found.get("target")
    if isinstance(target, dict):
        _try("target.url", _looked_up, target.get("url"), mistakes)
        _try("target.keep", life, target.get("keep"), mistakes)
    spark = found.get("spark")
    if isinstance(spark, dict):
        _try("spark.master", _check_master, spark.get("master"), mistakes)
    verify = found.get("verify")
    if isinstance(verify, dict):
        _try("verify.source", _looked_up, verify.get("source"), mistakes)
        _try("verify.settle", seconds, verify.get("settle"), mistakes)
    analytics, metrics = found.get("analytics"), found.get("metrics")
    if isinstance(analytics, dict):
        _check_analytics(analytics, mistakes)
    if isinstance(metrics, dict):
        _try("metrics.listen", _check_address, metrics.get("listen"), mistakes)
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


def seconds(text: str) -> float:
    """Return the seconds in a time such as ``500ms``, ``1s`` or ``7d``; raises PipelineError."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise PipelineError("this is a time such as 500ms, 1s, 5m, 12h or 7d")
    return float(found[1]) * _UNITS[found[2]]


def life(text: str) -> float | None:
    """Return a retention time in seconds; ``None`` for ever. Raises PipelineError."""
    if text.strip() == "forever":
        return None
    try:
        found = seconds(text)
    except PipelineError:
        found = 0
    if not found:
        raise PipelineError("this is a time such as 12h or 90d, or forever")
    return found


def _try(place: str, check: Any, found: Any, mistakes: list[str]) -> None:
    """Record the error of a check; a wrong type is recorded elsewhere."""
    if not isinstance(found, (str, dict)):
        return
    try:
        check(found)
    except (PipelineError, SparkError) as problem:
        mistakes.append(f"{place}: {problem}")


def _check_dead_letter(found: Mapping[str, Any]) -> None:
    if not SinkOptions.parse(_options(found)).destination:
        raise PipelineError("the option destination is needed")


def _check_analytics(found: Mapping[str, Any], mistakes: list[str]) -> None:
    for setting in ("watermark", "report-span"):
        _try(f"analytics.{setting}", seconds, found.get(setting), mistakes)
    _try("analytics.url", _looked_up, found.get("url"), mistakes)
    if bool(found.get("path")) == bool(found.get("url")):
        mistakes.append(
            "analytics: this needs a path, a folder for Parquet files, or a url, that of a"
            " database, and not both"
        )


def _check_master(found: str) -> None:
    if found.startswith("sc:"):
        raise PipelineError(
            "a job drives Spark from its own process, and can't use a Spark Connect server: name"
            " the cluster itself, as in spark://HOST:7077"
        )


def _check_address(found: str) -> None:
    try:
        parse_address(found)
    except ValueError as error:
        raise PipelineError(str(error)) from None


def _options(found: Mapping[str, Any]) -> dict[str, str]:
    """Return TOML values as Spark options."""
    return {
        name: _looked_up(_text(name, value)) if name in _SECRET else _text(name, value)
        for name, value in found.items()
    }


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise PipelineError(f"the option {name} is a text, a number, a truth value, or several texts")


def _looked_up(text: str) -> str:
    try:
        return resolve(text)
    except SecretError as error:
        raise PipelineError(str(error)) from None


renamed(
    __name__,
    PipelineProblem="PipelineError",
)
