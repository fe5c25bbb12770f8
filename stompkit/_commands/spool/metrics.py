"""Prometheus metrics of a spool, for ``stompkit spool run --metrics``."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stompkit._commands.spool.options import SpoolUsageError
from stompkit._commands.spool.status import partitions_of, readers_of
from stompkit._common.files import describe
from stompkit._common.metrics import Address, MetricsError, counter, gauge, serving_collector
from stompkit.spool import Record, SpoolError, SpoolReader
from stompkit.spool.receiver import Appending, ReceiverStatus

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["Appends", "SpoolMetrics", "served"]

_log: Final = logging.getLogger(__name__)
_PREFIX: Final = "stompkit_spool"
#: Histogram buckets in seconds for the write time of a group.
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Appends:
    """A counting writer that several receivers share."""

    def __init__(self, writer: Appending) -> None:
        """Start to count."""
        self._writer: Final = writer
        self._lock: Final = threading.Lock()
        #: Number of failed writes; their messages were not acknowledged, and the writes retried.
        self.failures = 0
        #: Number of written groups by their first matching bucket, and the total time in seconds.
        self.groups: list[int] = [0] * (len(_BUCKETS) + 1)
        self.seconds = 0.0

    def append(self, records: Sequence[Record]) -> int:
        """Append records, one call at a time."""
        with self._lock:
            begun = time.monotonic()
            try:
                new = self._writer.append(records)
            except OSError:
                self.failures += 1
                raise
            took = time.monotonic() - begun
            self.seconds += took
            self.groups[sum(took > bound for bound in _BUCKETS)] += 1
            return new


class SpoolMetrics:
    """A Prometheus collector.

    ``stompkit_spool_received_total``, ``_duplicates_total``
        messages that were new, and duplicates, since the start of the process.
    ``stompkit_spool_group_seconds``
        histogram of the time in seconds until a group is on disk.
    ``stompkit_spool_append_failures_total``
        number of failed writes of groups, which are retried.
    ``stompkit_spool_connected``, ``_waiting``
        connected brokers, of ``stompkit_spool_brokers``, and received messages that are not on disk
        yet.
    ``stompkit_spool_head``, ``_floor``, ``_octets``
        with the label ``partition``: the ordinal after the last message, that of the first kept
        message, and the size of the messages between them in bytes.
    ``stompkit_spool_reader_lag_messages``, ``_reader_lag_seconds``, ``_reader_lost_messages``
        with the label ``reader``: unread messages, the age of the oldest one in seconds, and
        messages that were removed unread.
    """

    def __init__(
        self,
        folder: Path,
        appends: Appends,
        statuses: Callable[[], Sequence[ReceiverStatus]],
    ) -> None:
        """Read the state at each scrape."""
        self._folder: Final = folder
        self._appends: Final = appends
        self._statuses: Final = statuses

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        yield from self._received()
        try:
            yield from self._kept()
        except (OSError, SpoolError) as error:
            # The other metrics are all the more important then.
            _log.warning("the spool cannot be read for metrics: %s", describe(error))

    def _received(self) -> Iterator[Metric]:
        from prometheus_client.core import HistogramMetricFamily

        statuses = self._statuses()
        appends = self._appends
        counts = {
            "received": ("Messages that were new.", sum(each.received for each in statuses)),
            "duplicates": (
                "Messages that were there already.",
                sum(each.duplicates for each in statuses),
            ),
            "append_failures": (
                "How often a group could not be written, and was tried again.",
                appends.failures,
            ),
        }
        for name, (what, count) in counts.items():
            yield counter(f"{_PREFIX}_{name}", what, count)
        states = {
            "brokers": ("Brokers that messages are received from.", len(statuses)),
            "connected": ("Brokers that are there.", sum(each.connected for each in statuses)),
            "waiting": (
                "Messages that have come, and are not on the disk yet.",
                sum(each.waiting for each in statuses),
            ),
        }
        for name, (what, value) in states.items():
            yield gauge(f"{_PREFIX}_{name}", what, value)
        groups = list(appends.groups)
        bounds = [*map(str, _BUCKETS), "+Inf"]
        buckets = [(bound, sum(groups[: place + 1])) for place, bound in enumerate(bounds)]
        yield HistogramMetricFamily(
            f"{_PREFIX}_group_seconds",
            "What it takes until a group is on the disk.",
            buckets=buckets,
            sum_value=appends.seconds,
        )

    def _kept(self) -> Iterator[Metric]:
        reader = SpoolReader(self._folder)
        partitions = partitions_of(reader)
        of_partitions = {
            "head": ("The ordinal after the last message.", [each.head for each in partitions]),
            "floor": (
                "The ordinal of the first message that is still there.",
                [each.floor for each in partitions],
            ),
            "octets": ("What messages take.", [each.octets for each in partitions]),
        }
        for name, (what, values) in of_partitions.items():
            samples = [((str(number),), float(value)) for number, value in enumerate(values)]
            yield gauge(f"{_PREFIX}_{name}", what, samples, ("partition",))
        readers = readers_of(reader)
        of_readers = {
            "lag_messages": (
                "Messages that are not read yet.",
                [float(each.lag_messages) for each in readers],
            ),
            "lag_seconds": (
                "How long the oldest message is there that is not read yet.",
                [each.lag_s for each in readers],
            ),
            "lost_messages": (
                "Messages that are not read, and gone.",
                [float(each.lost_messages) for each in readers],
            ),
        }
        for name, (what, lags) in of_readers.items():
            samples = [((each.name,), lag) for each, lag in zip(readers, lags, strict=True)]
            yield gauge(f"{_PREFIX}_reader_{name}", what, samples, ("reader",))


@contextmanager
def served(metrics: SpoolMetrics, address: Address | None) -> Iterator[Address | None]:
    """Serve the metrics if an address is given; raises :class:`SpoolUsageError`."""
    try:
        with serving_collector(metrics, address) as found:
            yield found
    except MetricsError as error:
        raise SpoolUsageError(f"--metrics: {error}") from None
