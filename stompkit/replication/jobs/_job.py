"""A job: reads from one source, and writes to one target."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from stompkit._common.files import make_directory
from stompkit._common.secrets import mask_url
from stompkit._common.text import text_of
from stompkit.client.blocking import LinkClosedError
from stompkit.replication.jobs._context import JobContext
from stompkit.replication.jobs._settings import JobError, JobSettings, JobStatus
from stompkit.replication.jobs._sources import FillStatus, Source, SourceOpener
from stompkit.replication.jobs._targets import Target
from stompkit.replication.jobs._urls import (
    BROKERS,
    broker_of,
    check,
    is_source,
    is_target,
    name_of,
    scheme_of,
)
from stompkit.replication.jobs.feeder import FeederClosedError
from stompkit.replication.model.events import Changeset
from stompkit.replication.sinks import ApplyError, SinkMisconfiguredError
from stompkit.replication.sinks.signals import SignalsStoppedError

__all__ = ["Job"]

#: Settings of the ends of a job, by default.
_OPTIONS: Final = {"from": "--from", "to": "--to"}
#: Packages with the errors of sources that are databases.
_SOURCES: Final = ("stompkit.replication.sources.", "psycopg.", "pymysql.", "sqlalchemy.")


def _end_of(error: Exception) -> str:
    """Return the end of a job that an error of its source's thread is about, if it is clear."""
    if isinstance(error, (ApplyError, SinkMisconfiguredError)):
        return "to"
    return "from" if f"{type(error).__module__}.".startswith(_SOURCES) else ""


class Job:
    """Reads from one source and writes to one target until it is stopped."""

    def __init__(
        self, settings: JobSettings, *, on_applied: Callable[[Changeset], object] | None = None
    ) -> None:
        """Check the settings without connecting; raises :class:`JobError`.

        ``on_applied`` is called with each changeset from a broker that a database, a cache or an
        index has applied, because no signal is sent for these.
        """
        self._settings = settings
        tables = settings.selection()
        if settings.create and settings.source.startswith("outbox+"):
            raise JobError(
                "--create: an outbox does not contain the columns of tables. Create the tables"
                " yourself, and leave --create out."
            )
        if settings.once and settings.source.startswith(BROKERS):
            raise JobError("--once is for databases: a broker does not say where its end is")
        source_scheme = scheme_of(settings.source, "from", is_source)
        target_scheme = scheme_of(settings.to, "to", is_target)
        brokers = [
            broker_of(url, option)
            for url, option in ((settings.source, "from"), (settings.to, "to"))
            if url.startswith(tuple(f"{scheme}://" for scheme in BROKERS))
        ]
        check(settings, brokers)
        self.name: Final = settings.name or name_of(settings)
        if not re.fullmatch(r"[\w.-]+", self.name):
            raise JobError(f"the name {self.name!r} is to name files: letters, digits, - . and _")
        self._job = JobContext(
            settings,
            name=self.name,
            source_scheme=source_scheme,
            target_scheme=target_scheme,
            tables=tables,
            on_applied=on_applied,
        )
        self._started = datetime.now(UTC)
        self._phase = "starting"
        self._last: JobStatus | None = None
        self._fill: FillStatus = lambda status: None

    @property
    def state_path(self) -> Path:
        """Path of the checkpoint file, for sources that resume from one."""
        return self._job.state_path

    @property
    def status_path(self) -> Path:
        """Path of the status file of a running job."""
        return self._settings.directory / f"{self.name}.status.json"

    def run(self) -> None:
        """Run until the job has ended or :meth:`stop` is called; in the caller's thread.

        Raises :class:`JobError`, and errors of the source or the target that cannot be retried.
        """
        with ExitStack() as stack:
            try:
                make_directory(self._settings.directory, mode=0o700)
                source = SourceOpener(self._job, Target(self._job)).open(stack)
                self._fill, self._job.stop_source = source.fill, source.stop
                self._phase = "streaming"
                self._run(source)
            except BaseException as error:
                self._phase = "failed"
                self._job.error = self.described(text_of(error))
                raise
            else:
                self._phase = "ended"
            finally:
                # The next step closes the sources of the figures.
                self._last = self.status()

    def stop(self) -> None:
        """Make :meth:`run` return soon; thread-safe and idempotent."""
        self._job.stop()

    def status(self) -> JobStatus:
        """Return the current or final status; thread-safe."""
        if self._last is not None:
            return self._last
        status = JobStatus(
            name=self.name,
            source=mask_url(self._settings.source),
            to=mask_url(self._settings.to),
            pid=os.getpid(),
            phase=self._phase,
            error=self._job.error,
            started=self._started,
            updated=datetime.now(UTC),
        )
        if self._phase not in ("failed", "ended"):
            # A job that is over needs no broker. What it has failed at is in the error.
            status.disconnected = self._job.disconnected
        self._fill(status)
        if self._phase == "streaming" and status.snapshot:
            status.phase = "snapshot"
        return status

    def described(self, reason: str, places: Mapping[str, str] = _OPTIONS) -> str:
        """Return the reason of a failure with the setting to check, and without secrets.

        *places* are the settings of the source and the target, as users have given them.
        """
        place = places.get(self._job.failed_end)
        return self.without_secrets(f"{place}: {reason}" if place else reason)

    def without_secrets(self, text: str) -> str:
        """Return a text with the passwords in the job's URLs masked.

        A password that occurs elsewhere in the text is not recognisable there, and stays.
        """
        return self._job.without_secrets(text)

    def _run(self, source: Source) -> None:
        try:
            if not self._job.stopping.is_set():
                source.run()
        except (FeederClosedError, LinkClosedError, SignalsStoppedError):
            # Changesets that could not be passed on will be read again.
            if self._job.failure is None and not self._job.stopping.is_set():
                raise
        except Exception as error:
            self._job.failed_end = self._job.failed_end or _end_of(error)
            raise
        if self._job.failure is not None:
            raise self._job.failure
