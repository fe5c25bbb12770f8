"""Targets of jobs: brokers, standard output, and sinks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from sqlalchemy import Engine

from stompkit.replication.jobs._context import JobContext
from stompkit.replication.jobs._urls import BROKERS, REDIS, SEARCH, engine_of
from stompkit.replication.jobs.feeder import Feeder
from stompkit.replication.sinks import Sink
from stompkit.replication.sinks.forwarders.printing import print_sub
from stompkit.replication.sinks.forwarders.stomp import StompSub, stomp_sub

__all__ = ["Target"]

#: Number of retries of a target in a job that ends by itself.
_RETRIES: Final = 3
#: Time in seconds to wait for a target at the end. The source, which keeps the checkpoint, has
#: waited before.
_CLOSE_S: Final = 2.0


class Target:
    """Opens the target of a job."""

    def __init__(self, job: JobContext) -> None:
        """Open the target that the settings name."""
        self._job = job
        #: Publisher to a broker, once it is connected.
        self.sub: StompSub | None = None

    def connect(self, stack: ExitStack) -> None:
        """Connect the target to the signals."""
        with self._job.blaming("to"):
            self._connect(stack)

    def _connect(self, stack: ExitStack) -> None:
        settings = self._job.settings
        if self._job.target_scheme in BROKERS:
            self.sub = sub = self._stomp_sub()
            stack.callback(sub.close, _CLOSE_S)
            self._job.watch("to", sub.link)
        elif self._job.target_scheme == "print":
            stack.callback(self._printer().close)
        else:
            sink = stack.enter_context(self.sink())
            # A job that ends by itself must not retry forever.
            retries = _RETRIES if settings.once else None
            feeder = Feeder(
                sink,
                batch=settings.batch,
                retries=retries,
                on_failure=self._job.report,
                on_applied=self._job.recover,
                on_end=self._job.fail,
                changesets=self._job.changesets,
            )
            stack.callback(feeder.close, _CLOSE_S)
            self._job.stop_targets.append(feeder.stop)

    @contextmanager
    def sink(self) -> Iterator[Sink]:
        """Open the sink of a target that is no broker, and close it at the end."""
        settings = self._job.settings
        sink: Sink
        engine: Engine | None = None
        if self._job.target_scheme in REDIS:
            from stompkit.replication.sinks.cache import RedisSink

            sink = RedisSink(settings.to, namespace=settings.namespace, ttl_s=settings.ttl)
        elif self._job.target_scheme in SEARCH:
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

    def _stomp_sub(self) -> StompSub:
        settings = self._job.settings
        return stomp_sub(
            settings.to,
            receipts=not settings.no_receipts,
            partitions=settings.partitions,
            max_body_bytes=settings.max_frame_bytes,
            changesets=self._job.changesets,
        )

    def _printer(self) -> Any:
        is_json = self._job.settings.to == "print:json"
        return print_sub(
            None, format="json" if is_json else "text", changesets=self._job.changesets
        )
