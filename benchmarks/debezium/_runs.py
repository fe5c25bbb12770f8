"""Runs of both readers, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final, NamedTuple, Self

from blinker import Signal

from benchmarks._report import broken
from benchmarks.debezium._databases import Database
from benchmarks.debezium._engine import Engine
from stompkit.replication.model.events import Changeset
from stompkit.replication.model.frames import MAX_BODY_BYTES, packets
from stompkit.replication.sinks.forwarders.stomp import stomp_sub
from stompkit.testing import RunningBroker

__all__ = ["BATCH_ROWS", "Run", "run_engine", "run_stompkit"]

#: Rows of a batch of the engine, by default.
BATCH_ROWS: Final = 2048


class Run(NamedTuple):
    """The cost of one run."""

    start_cpu_s: float
    """CPU time of the reading process until it has delivered the first rows."""
    cpu_s: float
    """CPU time for each further row."""
    elapsed_s: float
    """Elapsed time for each further row."""
    row_bytes: float
    """Bytes of JSON for each row; 0 if they were not counted."""

    @classmethod
    def of(cls, answer: Mapping[str, Any], rows: int) -> Self:
        """Return the run of ``rows`` that an answer of the engine's driver describes."""
        first, whole = answer["first"], answer["all"]
        further = rows - answer["first_rows"]
        return cls(
            first["cpu_s"],
            (whole["cpu_s"] - first["cpu_s"]) / further,
            (whole["elapsed_s"] - first["elapsed_s"]) / further,
            answer["bytes"] / rows,
        )


def run_engine(
    database: Database,
    rows: int,
    engine: Engine,
    target: tuple[RunningBroker, str] | None,
    *,
    frame_bytes: int = MAX_BODY_BYTES,
) -> Run:
    """Run Debezium's engine; with a broker and a destination it publishes the events.

    A frame has as many events as fit in ``frame_bytes``, and at least one.
    """
    broker = None
    if target is not None:
        running, destination = target
        broker = {"port": running.port, "destination": destination, "frame": frame_bytes}
    return Run.of(engine.run(database.settings(), rows, broker), rows)


def run_stompkit(database: Database, rows: int, target: tuple[RunningBroker, str] | None) -> Run:
    """Run a publisher of stompkit in this process, with the same result as :func:`run_engine`."""
    counter = _Counter(encodes=target is None)
    changesets = Signal()
    changesets.connect(counter.receive)
    with ExitStack() as stack:
        if target is not None:
            running, destination = target
            url = f"{running.url}{destination}"
            stack.enter_context(stomp_sub(url, changesets=changesets))
        publication = database.publish(changesets)
        whole = counter.usage()
    if publication.changes != rows:
        raise broken(f"{publication.changes} of {rows} rows were published")
    answer = {
        "first": counter.first,
        "first_rows": counter.first_rows,
        "all": whole,
        "bytes": counter.bytes,
    }
    return Run.of(answer, rows)


class _Counter:
    """Receives changesets; notes the usage after the first one."""

    def __init__(self, *, encodes: bool) -> None:
        """Begin to measure. With ``encodes``, changesets are encoded as for a broker."""
        self._encodes = encodes
        self._cpu_s = time.process_time()
        self._clock_s = time.perf_counter()
        self.first: dict[str, float] = {}
        self.first_rows = 0
        self.bytes = 0

    def receive(self, changeset: Changeset) -> None:
        """Count a changeset."""
        if self._encodes:
            self.bytes += sum(len(packet.body) for packet in packets(changeset))
        if not self.first:
            self.first_rows = len(changeset.changes)
            self.first = self.usage()

    def usage(self) -> dict[str, float]:
        """Return the seconds since the begin."""
        return {
            "cpu_s": time.process_time() - self._cpu_s,
            "elapsed_s": time.perf_counter() - self._clock_s,
        }
