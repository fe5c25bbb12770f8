"""Publishers and consumers on the broker of the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from stompkit.client.blocking import Link
from stompkit.replication.consumer import Consumer
from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.replication.sinks.forwarders.stomp import StompSub, stomp_sub
from stompkit.testing import RunningBroker
from stompkit.testing.launching.polling import wait_until
from tests.replication.brokers import Address, broker_url, connect

__all__ = ["LONG_S", "Dead", "Place", "Running", "changeset", "until", "write", "writes"]

#: Timeout in seconds for fast operations on any machine.
LONG_S = 60.0
_SOURCE = Source(kind="test")
_Given = TypeVar("_Given")


@dataclass(frozen=True)
class Dead:
    """An address where nothing listens."""

    host: str
    port: int


def until(condition: Callable[[], _Given]) -> _Given:
    """Wait for a condition; return its value."""
    given = wait_until(condition, LONG_S)
    assert given, "it did not happen in time"
    return given


def write(number: int, text: str = "", table: str = "t") -> RowChange:
    return RowChange(table=table, action="write", key={"id": number}, after={"text": text})


def changeset(sequence: int, *changes: RowChange, origin: str = "o") -> Changeset:
    """Return a changeset; by default of one new row with the changeset's number as key."""
    made = changes or (write(sequence),)
    return make_changeset(origin, sequence, made, _SOURCE, id=f"{origin}:{sequence}")


def writes(first: int, last: int, *, rows: int = 1, size: int = 0) -> Iterator[Changeset]:
    """Return changesets with this many new rows each, each with this many bytes."""
    for sequence in range(first, last + 1):
        yield changeset(sequence, *(write(sequence * 1000 + n, "x" * size) for n in range(rows)))


class Running:
    """A consumer in a thread."""

    def __init__(self, consumer: Consumer) -> None:
        """Start it."""
        self.consumer = consumer
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.consumer.run()
        except BaseException as error:
            self.error = error

    def join(self) -> BaseException | None:
        """Wait for its end; return the error that ended it, if any."""
        self._thread.join(LONG_S)
        assert not self._thread.is_alive(), "the consumer does not end"
        return self.error


@dataclass(frozen=True)
class Place:
    """A broker, its capabilities, and a directory for stores."""

    broker: RunningBroker
    acknowledges: bool
    has_receipts: bool
    directory: Path

    @property
    def store(self) -> Path:
        """Return the file of a store."""
        return self.directory / "store.sqlite"

    def queue(self, name: str = "changes") -> str:
        """Return a new queue."""
        return self.broker.queue(name)

    def url(self, destination: str, *addresses: Address) -> str:
        """Return the URL of the broker, or of a proxy in front of it."""
        return broker_url(self.broker, destination, *addresses)

    def sub(self, where: str, *addresses: Address, **settings: Any) -> StompSub:
        """Publish to a destination."""
        settings = {"receipts": self.has_receipts, **settings}
        return stomp_sub(self.url(where, *addresses), **settings)

    def link(self, *addresses: Address, **settings: Any) -> Link:
        """Connect."""
        return connect(self.broker, at=addresses, receipts=self.has_receipts, **settings)

    def publish(
        self,
        where: str,
        changesets: Iterable[Changeset],
        *,
        addresses: Sequence[Address] = (),
        **settings: Any,
    ) -> None:
        """Publish changesets, and wait until the broker has confirmed them."""
        with self.sub(where, *addresses, **settings) as sub:
            for future in [sub.send(each) for each in changesets]:
                future.result(LONG_S)

    @contextmanager
    def consuming(
        self, destination: str, sink: Any, *, link: Link | None = None, **settings: Any
    ) -> Iterator[Running]:
        """Consume in a thread until the end of the block; raise an error that ends it earlier."""
        own = link or self.link()
        consumer = Consumer(own, destination, sink, **{"ack": self.acknowledges, **settings})
        running = Running(consumer)
        try:
            yield running
            assert running.error is None, running.error
        finally:
            consumer.stop()
            running.join()
            if link is None:
                own.close()
