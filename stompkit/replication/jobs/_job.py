"""A job: reads from one source, and writes to one target."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import msgspec
from blinker import Signal
from sqlalchemy import Engine

from stompkit._common.secrets import mask, mask_url
from stompkit.link import Link, LinkClosedError
from stompkit.replication.consumer import Consumer
from stompkit.replication.jobs._settings import (
    JobError,
    JobSettings,
    JobStatus,
    database_of,
)
from stompkit.replication.jobs._urls import (
    BROKERS,
    REDIS,
    SEARCH,
    broker_of,
    check,
    engine_of,
    is_source,
    is_target,
    name_of,
    scheme_of,
)
from stompkit.replication.jobs.feeder import Feeder, FeederClosedError
from stompkit.replication.model.events import Changeset
from stompkit.replication.model.signals import emit
from stompkit.replication.model.tables import Tables
from stompkit.replication.sinks import Refuse, RowSink, Sink
from stompkit.replication.sinks.forwarders.printing import print_sub
from stompkit.replication.sinks.forwarders.stomp import StompSub, stomp_sub
from stompkit.replication.sinks.signals import SignalSink, SignalsStoppedError
from stompkit.replication.sources.offsets import FileOffsets
from stompkit.replication.sources.publication import Publication

__all__ = ["Job"]

#: Number of retries of a target in a job that ends by itself.
_RETRIES: Final = 3
#: Time in seconds to wait for a target at the end. The source, which keeps the checkpoint, has
#: waited before.
_CLOSE_S: Final = 2.0
#: Function that adds its figures to a status.
_Fill = Callable[[JobStatus], None]


class _Publisher(Protocol):
    """A reader of a database; :meth:`run` ends by itself, or after :meth:`stop`."""

    def run(self) -> None: ...

    def stop(self) -> None: ...


def _selected(tables: Tables, changeset: Changeset) -> Changeset:
    """Return a changeset with the selected changes only, with masks."""
    changes = tuple(
        tables.shape(change)
        for change in changeset.changes
        if tables.wants(change.schema, change.table)
    )
    return msgspec.structs.replace(changeset, changes=changes)


class _SelectingSink:
    """A sink that applies only selected changes."""

    def __init__(self, sink: Sink, tables: Tables) -> None:
        self._tables = tables
        self._sink = sink
        self.last = sink.last
        self.skip = sink.skip
        self.close = sink.close

    def apply(self, changesets: Sequence[Changeset]) -> None:
        """Apply the selected changes; an empty changeset still advances the sequence number."""
        self._sink.apply([_selected(self._tables, each) for each in changesets])

    def apply_rows(self, changeset: Changeset, refuse: Refuse) -> None:
        """Apply the selected changes that the sink accepts; see RowSink."""
        selected = _selected(self._tables, changeset)
        if isinstance(self._sink, RowSink):
            self._sink.apply_rows(selected, refuse)
        else:
            self._sink.apply([selected])


class _Counted:
    """Sends the signals of changesets, and counts them."""

    def __init__(self, tables: Tables, stop: threading.Event, changesets: Signal) -> None:
        self._tables = tables
        self._signal = changesets
        self._stop = stop
        self.changesets = self.changes = 0
        self.lag_s: float | None = None

    def publish(self, changeset: Changeset) -> Future[Any] | None:
        """Send the signals of the selected changes of a changeset."""
        changeset = _selected(self._tables, changeset)
        try:
            futures = emit(changeset, changesets=self._signal)
        except (FeederClosedError, LinkClosedError):
            if not self._stop.is_set():
                raise
            # The changeset stays in the outbox, and the relay waits a while for earlier ones.
            return Future()
        self.changesets += 1
        self.changes += len(changeset.changes)
        self.lag_s = (datetime.now(UTC) - changeset.timestamp).total_seconds()
        # A job has one target, so futures of other receivers are ignored.
        return futures[0] if futures else None


@dataclass(slots=True)
class _Source:
    """The open source of a job."""

    run: Callable[[], None]
    stop: Callable[[], None]
    fill: _Fill


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
        self._on_applied = on_applied
        self._tables = settings.selection()
        if settings.create and settings.source.startswith("outbox+"):
            raise JobError(
                "--create: an outbox does not tell what columns tables have; make the tables"
            )
        if settings.once and settings.source.startswith(BROKERS):
            raise JobError("--once is for databases: a broker does not say where its end is")
        self._source_scheme = scheme_of(settings.source, "from", is_source)
        self._to_scheme = scheme_of(settings.to, "to", is_target)
        brokers = [
            broker_of(url, option)
            for url, option in ((settings.source, "from"), (settings.to, "to"))
            if url.startswith(tuple(f"{scheme}://" for scheme in BROKERS))
        ]
        check(settings, brokers)
        self.name: Final = settings.name or name_of(settings)
        if not re.fullmatch(r"[\w.-]+", self.name):
            raise JobError(f"the name {self.name!r} is to name files: letters, digits, - . and _")
        self._directory = settings.directory
        self._started = datetime.now(UTC)
        self._phase = "starting"
        self._error = ""
        self._last: JobStatus | None = None
        self._fill: _Fill = lambda status: None
        self._links: list[tuple[str, Link]] = []
        #: Private signal from the job's source to its target, invisible to other jobs of the
        #: process.
        self._changesets = Signal()
        self._stop = threading.Event()
        self._stop_source: Callable[[], None] = lambda: None
        #: Functions that end the waits of targets.
        self._stop_targets: list[Callable[[], None]] = []
        #: Permanent failure of a target.
        self._failure: BaseException | None = None

    @property
    def state_path(self) -> Path:
        """Path of the checkpoint file, for sources that resume from one."""
        return self._directory / f"{self.name}.json"

    @property
    def status_path(self) -> Path:
        """Path of the status file of a running job."""
        return self._directory / f"{self.name}.status.json"

    def run(self) -> None:
        """Run until the job has ended or :meth:`stop` is called; in the caller's thread.

        Raises :class:`JobError`, and errors of the source or the target that cannot be retried.
        """
        with ExitStack() as stack:
            try:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                source = self._open(stack)
                self._fill, self._stop_source = source.fill, source.stop
                self._phase = "streaming"
                self._run(source)
            except BaseException as error:
                self._phase = "failed"
                self._error = self.without_secrets(str(error) or type(error).__name__)
                raise
            else:
                self._phase = "ended"
            finally:
                # The next step closes the sources of the figures.
                self._last = self.status()

    def stop(self) -> None:
        """Make :meth:`run` return soon; thread-safe and idempotent."""
        self._stop.set()
        self._stop_source()
        for stop in self._stop_targets:
            stop()

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
            error=self._error,
            started=self._started,
            updated=datetime.now(UTC),
        )
        status.disconnected = [url for url, link in self._links if not link.is_connected]
        self._fill(status)
        if self._phase == "streaming" and any(done < of for done, of in status.snapshot.values()):
            status.phase = "snapshot"
        return status

    def without_secrets(self, text: str) -> str:
        """Return a text with the passwords in the job's URLs masked.

        A password that occurs elsewhere in the text is not recognisable there, and stays.
        """
        return mask(text, (self._settings.source, self._settings.to))

    def _run(self, source: _Source) -> None:
        try:
            if not self._stop.is_set():
                source.run()
        except (FeederClosedError, LinkClosedError, SignalsStoppedError):
            # Changesets that could not be passed on will be read again.
            if self._failure is None and not self._stop.is_set():
                raise
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: BaseException) -> None:
        """End the job, because a target has failed; an idle source would not notice."""
        self._failure = error
        self.stop()

    def _watch(self, url: str, link: Link) -> None:
        """Report a connection in the status, and end the job if it gives up."""

        def closed(done: Future[None]) -> None:
            error = done.exception()
            if error is not None:
                self._fail(LinkClosedError(f"{mask_url(url)}: {error}"))

        self._links.append((mask_url(url), link))
        self._stop_targets.append(link.stop)
        link.closed.add_done_callback(closed)

    # Components.

    def _open(self, stack: ExitStack) -> _Source:
        if self._source_scheme in BROKERS:
            return self._consumer(stack)
        if self._source_scheme.startswith("outbox+"):
            return self._relay(stack)
        return self._publisher(stack)

    def _publisher(self, stack: ExitStack) -> _Source:
        """Open a database publisher; targets receive signals."""
        settings = self._settings
        publication = Publication(
            FileOffsets(self.state_path),
            kind="postgresql" if self._source_scheme == "postgresql" else "mysql",
            name=self.name,
            server=urlsplit(settings.source).hostname or "",
            tables=self._tables,
            changesets=self._changesets,
        )
        make = self._postgres if self._source_scheme == "postgresql" else self._mysql
        publisher, fill_more = make(publication)

        def fill(status: JobStatus) -> None:
            status.changesets = publication.published
            status.changes = publication.changes
            status.unconfirmed = publication.unconfirmed
            status.position = publication.position
            status.lag_s = publication.lag_s
            fill_more(status)

        self._hear(stack)
        return _Source(publisher.run, publisher.stop, fill)

    def _postgres(self, publication: Publication) -> tuple[_Publisher, _Fill]:
        from stompkit.replication.sources.postgres import PostgresPublisher

        settings = self._settings
        progress: dict[str, tuple[int, int]] = {}

        def tell(table: str, done: int, estimate: int) -> None:
            progress[table] = (done, estimate)

        def fill(status: JobStatus) -> None:
            status.snapshot = dict(progress)

        publisher = PostgresPublisher(
            settings.source,
            publication,
            slot=settings.slot,
            publication_name=settings.slot,
            all_tables=settings.all_tables,
            snapshot=settings.snapshot,
            announce=True,
            blocking=not settings.once,
            on_progress=tell,
        )
        return publisher, fill

    def _mysql(self, publication: Publication) -> tuple[_Publisher, _Fill]:
        from stompkit.replication.sources.mysql import MysqlPublisher

        settings = self._settings
        publisher = MysqlPublisher(
            settings.source,
            publication=publication,
            server_id=settings.server_id or None,
            snapshot=settings.snapshot,
            announce=True,
            blocking=not settings.once,
            needs_tables=bool(settings.tables),
            needs_database=database_of(settings.source),
        )

        def fill(status: JobStatus) -> None:
            progress = publisher.progress
            status.snapshot = {} if progress is None else {"all tables": progress}

        return publisher, fill

    def _hear(self, stack: ExitStack) -> None:
        """Connect the target to the signals."""
        settings = self._settings
        if self._to_scheme in BROKERS:
            sub = self._stomp_sub()
            stack.callback(sub.close, _CLOSE_S)
            self._watch(settings.to, sub.link)
        elif self._to_scheme == "print":
            stack.callback(self._printer().close)
        else:
            sink = stack.enter_context(self._sink())
            # A job that ends by itself must not retry forever.
            retries = _RETRIES if settings.once else None
            feeder = Feeder(
                sink,
                batch=settings.batch,
                retries=retries,
                on_failure=self._tell,
                on_applied=self._recover,
                on_end=self._fail,
                changesets=self._changesets,
            )
            stack.callback(feeder.close, _CLOSE_S)
            self._stop_targets.append(feeder.stop)

    def _consumer(self, stack: ExitStack) -> _Source:
        """Open a broker consumer; targets are sinks, or receive signals from a sink."""
        settings = self._settings
        url = broker_of(settings.source, "from")
        sink: Sink
        if self._to_scheme in (*BROKERS, "print"):
            self._hear(stack)
            sink = signals = SignalSink(self._changesets)
            self._stop_targets.append(signals.stop)
            applied = self._recover
        else:
            sink = stack.enter_context(self._sink())
            applied = self._applied
        more = {"connect_headers": {"client-id": settings.durable}} if settings.durable else {}
        link = stack.enter_context(url.link(receipts=not settings.no_receipts, **more))
        self._watch(settings.source, link)
        consumer = Consumer(
            link,
            url.destination,
            _SelectingSink(sink, self._tables),
            ack=not settings.no_ack,
            durable=settings.durable or None,
            batch=settings.batch,
            prefetch=settings.prefetch,
            dead_letter=settings.dead_letter or None,
            retries=None,
            gap=settings.gap,
            on_applied=applied,
            on_problem=lambda problem: self._tell(problem.text),
        )

        def fill(status: JobStatus) -> None:
            seen = consumer.status()
            status.changesets = seen.applied
            status.changes = seen.changes
            status.repeats = seen.repeats
            status.dead_letters = seen.dead_letters
            status.held_back = seen.held_back
            status.lag_s = seen.lag_s
            status.position = ", ".join(f"{origin}: {n}" for origin, n in seen.last.items())

        return _Source(partial(consumer.run, self._stop), consumer.stop, fill)

    def _relay(self, stack: ExitStack) -> _Source:
        """Open an outbox relay; targets receive signals."""
        from stompkit.replication.sources.relay import OutboxRelay

        self._hear(stack)
        engine = engine_of(self._settings.source.removeprefix("outbox+"))
        stack.callback(engine.dispose)
        counted = _Counted(self._tables, self._stop, self._changesets)
        relay = OutboxRelay(engine, counted.publish)

        def run() -> None:
            if self._settings.once:
                while relay.run_once(stop=self._stop) and not self._stop.is_set():
                    pass
                owner = relay.status().lease_owner
                if not relay.status().is_leading and owner is not None:
                    raise JobError(f"the outbox is published by another relay, {owner}")
            else:
                relay.run(self._stop)

        def fill(status: JobStatus) -> None:
            status.changesets, status.changes = counted.changesets, counted.changes
            status.lag_s = counted.lag_s
            try:
                seen = relay.status()
            except Exception as error:
                status.error = self.without_secrets(f"the outbox can't be read: {error}")
                return
            status.position = f"{seen.origin}: {seen.last_sequence}" if seen.origin else ""
            status.backlog = seen.backlog
            status.oldest_s = seen.oldest_age_s

        stack.callback(relay.close)
        return _Source(run, lambda: None, fill)

    # Targets.

    def _stomp_sub(self) -> StompSub:
        settings = self._settings
        return stomp_sub(
            settings.to,
            receipts=not settings.no_receipts,
            partitions=settings.partitions,
            max_body_bytes=settings.max_frame_bytes,
            changesets=self._changesets,
        )

    def _printer(self) -> Any:
        is_json = self._settings.to == "print:json"
        return print_sub(None, format="json" if is_json else "text", changesets=self._changesets)

    @contextmanager
    def _sink(self) -> Iterator[Sink]:
        settings = self._settings
        sink: Sink
        engine: Engine | None = None
        if self._to_scheme in REDIS:
            from stompkit.replication.sinks.cache import RedisSink

            sink = RedisSink(settings.to, namespace=settings.namespace, ttl_s=settings.ttl)
        elif self._to_scheme in SEARCH:
            from stompkit.replication.sinks.search import SearchSink

            sink = SearchSink(settings.to.partition("+")[2], index=settings.index)
        else:
            from stompkit.replication.sinks.sql import SqlSink

            engine = engine_of(settings.to)
            sink = SqlSink(
                engine,
                schema_map=settings.schema_map,
                table_map=settings.table_map,
                create=settings.create,
                evolve=settings.evolve,
                foreign_keys=settings.foreign_keys,
            )
        try:
            yield sink
        finally:
            sink.close()
            if engine is not None:
                engine.dispose()

    def _tell(self, problem: object) -> None:
        """Show a problem in the status."""
        self._error = self.without_secrets(str(problem))

    def _recover(self, changesets: Sequence[Changeset]) -> None:
        """Clear the problem in the status."""
        self._error = ""

    def _applied(self, changesets: Sequence[Changeset]) -> None:
        """Report changesets that are not sent by signals."""
        self._recover(changesets)
        if self._on_applied is not None:
            for changeset in changesets:
                self._on_applied(changeset)
