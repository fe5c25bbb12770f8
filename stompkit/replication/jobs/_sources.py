"""Sources of jobs: databases, outboxes, and brokers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Protocol
from urllib.parse import urlsplit

from stompkit.replication.consumer import Consumer
from stompkit.replication.jobs._context import JobContext
from stompkit.replication.jobs._selecting import CountingEmitter, SelectingSink
from stompkit.replication.jobs._settings import JobError, JobStatus, database_of
from stompkit.replication.jobs._targets import Target
from stompkit.replication.jobs._urls import BROKERS, broker_of, engine_of
from stompkit.replication.sinks import Sink
from stompkit.replication.sinks.signals import SignalSink
from stompkit.replication.sources.offsets import FileOffsets
from stompkit.replication.sources.publication import Publication

__all__ = ["FillStatus", "Source", "SourceOpener"]

#: Function that adds its figures to a status.
FillStatus = Callable[[JobStatus], None]


@dataclass(slots=True)
class Source:
    """The open source of a job."""

    run: Callable[[], None]
    stop: Callable[[], None]
    fill: FillStatus


class _DatabaseSource(Protocol):
    """A reader of a database; :meth:`run` ends by itself, or after :meth:`stop`."""

    def run(self) -> None: ...

    def stop(self) -> None: ...


class SourceOpener:
    """Opens the source of a job."""

    def __init__(self, job: JobContext, target: Target) -> None:
        """Open the source that the settings name, for *target*."""
        self._job = job
        self._target = target

    def open(self, stack: ExitStack) -> Source:
        """Open the source, and connect the target to it."""
        if self._job.source_scheme in BROKERS:
            return self._consumer(stack)
        if self._job.source_scheme.startswith("outbox+"):
            return self._relay(stack)
        return self._database(stack)

    def _database(self, stack: ExitStack) -> Source:
        """Open a database publisher; targets receive signals."""
        settings = self._job.settings
        publication = Publication(
            FileOffsets(self._job.state_path),
            kind="postgresql" if self._job.source_scheme == "postgresql" else "mysql",
            name=self._job.name,
            server=urlsplit(settings.source).hostname or "",
            tables=self._job.tables,
            changesets=self._job.changesets,
        )
        make = self._postgres if self._job.source_scheme == "postgresql" else self._mysql
        reader, fill_more = make(publication)

        def fill(status: JobStatus) -> None:
            status.changesets = publication.published
            status.changes = publication.changes
            status.unconfirmed = publication.unconfirmed
            status.position = publication.position
            status.lag_s = publication.lag_s
            problem = self._job.without_secrets(publication.problem)
            status.error = status.error or problem
            fill_more(status)

        self._target.connect(stack)
        return Source(reader.run, reader.stop, fill)

    def _postgres(self, publication: Publication) -> tuple[_DatabaseSource, FillStatus]:
        from stompkit.replication.sources.postgres import PostgresPublisher

        settings = self._job.settings
        progress: dict[str, tuple[int, int]] = {}

        def report(table: str, done: int, estimate: int) -> None:
            progress[table] = (done, estimate)

        def fill(status: JobStatus) -> None:
            # The estimates do not say where the end is.
            is_copying = bool(publication.state.get("snapshot") or publication.state.get("copy"))
            status.snapshot = dict(progress) if is_copying else {}

        publisher = PostgresPublisher(
            settings.source,
            publication,
            slot=settings.slot,
            publication_name=settings.slot,
            all_tables=settings.all_tables,
            snapshot=settings.snapshot,
            announce=True,
            blocking=not settings.once,
            on_progress=report,
        )
        return publisher, fill

    def _mysql(self, publication: Publication) -> tuple[_DatabaseSource, FillStatus]:
        from stompkit.replication.sources.mysql import MysqlPublisher

        settings = self._job.settings
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

    def _consumer(self, stack: ExitStack) -> Source:
        """Open a broker consumer; targets are sinks, or receive signals from a sink."""
        settings = self._job.settings
        url = broker_of(settings.source, "from")
        sink: Sink
        if self._job.target_scheme in (*BROKERS, "print"):
            self._target.connect(stack)
            sink = signals = SignalSink(self._job.changesets)
            self._job.stop_targets.append(signals.stop)
            applied = self._job.recover
        else:
            with self._job.blaming("to"):
                sink = stack.enter_context(self._target.sink())
            applied = self._job.applied
        more = {"connect_headers": {"client-id": settings.durable}} if settings.durable else {}
        link = stack.enter_context(url.link(receipts=not settings.no_receipts, **more))
        self._job.watch("from", link)
        consumer = Consumer(
            link,
            url.destination,
            SelectingSink(sink, self._job.tables),
            ack=not settings.no_ack,
            durable=settings.durable or None,
            batch=settings.batch,
            prefetch=settings.prefetch,
            dead_letter=settings.dead_letter or None,
            retries=None,
            gap=settings.gap,
            on_applied=applied,
            on_problem=lambda problem: self._job.report(problem.text),
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

        return Source(partial(consumer.run, self._job.stopping), consumer.stop, fill)

    def _relay(self, stack: ExitStack) -> Source:
        """Open an outbox relay; targets receive signals."""
        from stompkit.replication.sources.relay import OutboxRelay

        self._target.connect(stack)
        engine = engine_of(self._job.settings.source.removeprefix("outbox+"))
        stack.callback(engine.dispose)
        counted = CountingEmitter(
            self._job.tables, self._job.stopping, self._job.changesets, self._target.sub
        )
        # A slow target of another kind may block for each changeset, longer than a lease for many.
        relay = OutboxRelay(engine, counted.publish if self._target.sub is None else counted)

        def run() -> None:
            if self._job.settings.once:
                while relay.run_once(stop=self._job.stopping) and not self._job.stopping.is_set():
                    pass
                owner = relay.status().lease_owner
                if not relay.status().is_leading and owner is not None:
                    raise JobError(f"the outbox is published by another relay, {owner}")
            else:
                relay.run(self._job.stopping)

        def fill(status: JobStatus) -> None:
            status.changesets, status.changes = counted.changesets, counted.changes
            status.lag_s = counted.lag_s
            try:
                seen = relay.status()
            except Exception as error:
                reason = self._job.without_secrets(f"the outbox cannot be read: {error}")
                status.error = status.error or reason
                return
            status.position = f"{seen.origin}: {seen.last_sequence}" if seen.origin else ""
            status.backlog = seen.backlog
            status.oldest_s = seen.oldest_age_s

        stack.callback(relay.close)
        return Source(run, lambda: None, fill)
