"""The settings of a pipeline, and the settings of its jobs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final, Literal

from msgspec.structs import replace

from stompkit._common.secrets import mask
from stompkit.spark.jobs.settings.tables import (
    AnalyticsSettings,
    ApplySettings,
    EventsSettings,
    MetricsSettings,
    SparkSettings,
    Table,
    TargetSettings,
    VerifySettings,
)
from stompkit.spark.jobs.settings.values import (
    SECRET_OPTIONS,
    PipelineError,
    options_of,
    resolved,
    seconds,
)
from stompkit.spark.stream.options import SourceOptions
from stompkit.spool import SpoolReader
from stompkit.spool.address import is_url

__all__ = ["JOBS", "JobName", "PipelineSettings"]

JobName = Literal["replicate", "events", "analytics"]
#: The existing jobs, with descriptions.
JOBS: Final[dict[JobName, str]] = {
    "replicate": "apply changes to a database",
    "events": "store changes in an event store",
    "analytics": "count changes by the minute, and report",
}

#: Pattern of the names of secret storage options.
_KEY: Final = re.compile("key|secret|token|password|sas", re.IGNORECASE)


class PipelineSettings(Table, frozen=True):
    """The settings of a pipeline."""

    #: Name of the fences, checkpoints and spool readers.
    name: str
    #: Options of the format ``stomp``, by the names that they have there.
    source: dict[str, Any]
    target: TargetSettings | None = None
    apply: ApplySettings = ApplySettings()
    #: Options of the sink ``stomp`` for dead letters.
    dead_letter: dict[str, Any] = {}  # noqa: RUF012 (structs copy defaults)
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
        options = {"payload": payload, **options_of(self.source)}
        names = {name.lower(): name for name in options}
        # Retention keeps messages for this reader; an empty name disables that.
        given = options.get(names.get("reader", ""))
        if given is None:
            options["reader"] = f"{self.name}.{job}"
        elif self.shared_reader():
            options[names["reader"]] = f"{given}.{job}"
        if is_url(options.get(names.get("spool", ""), "")) and "spooltimeout" not in names:
            options["spoolTimeout"] = str(max(round(seconds(self.retry_for)), 1))
        return options

    def shared_reader(self) -> str:
        """Return the reader's name in the file, if several jobs have it; otherwise empty.

        Each of them needs a name of its own: retention would only wait for the fastest one.
        """
        given = {name.lower(): value for name, value in self.source.items()}.get("reader")
        return str(given or "") if len(self.jobs()) > 1 else ""

    def spool(self) -> Path | str:
        """Return the folder of the spool to read, or the URL of its server."""
        return SourceOptions.parse(options_of(self.source)).spool

    def open_spool(self, *, timeout_s: float | None = None) -> SpoolReader:
        """Open the spool; raises :class:`~stompkit.spool.SpoolError`.

        A server that does not answer is waited for, by default as long as for a target.
        """
        if timeout_s is None:
            timeout_s = seconds(self.retry_for)
        return SourceOptions.parse(options_of(self.source)).open(timeout_s=timeout_s)

    def dead_letter_options(self) -> dict[str, str]:
        """Return the options of the sink ``stomp`` for dead letters; empty without such a sink."""
        return options_of(self.dead_letter)

    def target_url(self) -> str:
        """Return the resolved URL of the target; raises :class:`PipelineError` without one."""
        if self.target is None:
            raise PipelineError("[target]: the job replicate needs this table, with its url")
        return resolved(self.target.url)

    def source_url(self) -> str:
        """Return the resolved URL of the source to compare; raises :class:`PipelineError`."""
        if self.verify is None:
            raise PipelineError(
                "[verify]: the job verify needs this table, with its source, or --source URL"
            )
        return resolved(self.verify.source)

    def verify_masks(self) -> dict[str, str]:
        """Return the resolved masks of the publisher; raises :class:`PipelineError`."""
        masks = {} if self.verify is None else self.verify.masks
        return {pattern: resolved(mask) for pattern, mask in masks.items()}

    def analytics_url(self) -> str:
        """Return the resolved URL of the database for results; empty if there is none."""
        return resolved(self.analytics.url) if self.analytics is not None else ""

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
            _known(value)
            for options in (self.source, self.dead_letter)
            for name, value in options.items()
            if name.lower() in SECRET_OPTIONS and isinstance(value, str)
        ]
        urls = []
        if self.target is not None:
            urls.append(self.target.url)
            options = self.target.storage_options
            found += [_known(each) for name, each in options.items() if _KEY.search(name)]
        if self.verify is not None:
            urls.append(self.verify.source)
            masks = (_known(each).partition(":") for each in self.verify.masks.values())
            found += [secret for kind, _, secret in masks if kind == "hash"]
        if self.analytics is not None:
            urls.append(self.analytics.url)
        found += [each for name, each in self.spark.config.items() if _KEY.search(name)]
        return mask(text, [*urls, *map(_known, urls)], found)


def _known(text: str) -> str:
    """Return the resolved text; empty if that fails."""
    try:
        return resolved(text)
    except PipelineError:
        return ""
