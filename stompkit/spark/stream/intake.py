"""Filling the spool of a query that names brokers: a receiver in the query's own process."""

from __future__ import annotations

import time
from typing import Final, cast

from stompkit.client import AckMode
from stompkit.spark.java import SparkError
from stompkit.spark.stream.options import SourceOptions
from stompkit.spool import SpoolError, SpoolInUseError, SpoolReader, SpoolWriter
from stompkit.spool.receiver import Receiver

__all__ = ["Intake"]

#: Time in seconds between attempts to become the writer, while another process is.
_RETRY_S: Final = 10.0
#: Maximum time in seconds to wait for a spool created by another process, and for a broker.
_PATIENCE_S: Final = 30.0
#: Time in seconds without a message after which a broker counts as drained.
_QUIET_S: Final = 1.0
_LOOK_S: Final = 0.05


class Intake:
    """Receives into a spool, unless another process already does."""

    def __init__(self, options: SourceOptions) -> None:
        """Start idle."""
        self._options = options
        self._writer: SpoolWriter | None = None
        self._receiver: Receiver | None = None
        self._next_try = 0.0

    def ensure(self) -> None:
        """Start to receive if no process does; cheap enough to call often.

        Raises :class:`~stompkit.spark.session.SparkError` if receiving has ended.
        """
        options = self._options
        if self._receiver is not None:
            failure = self._receiver.status().failure
            if failure is not None:
                raise SparkError(f"nothing is received any more: {failure}") from failure
            return
        now = time.monotonic()
        if options.broker is None or now < self._next_try:
            return
        self._next_try = now + _RETRY_S
        try:
            self._writer = SpoolWriter(options.spool, partitions=options.partitions)
        except SpoolInUseError:
            return  # `stompkit spool` or another query fills it
        self._receiver = Receiver(
            options.broker,
            options.destinations,
            self._writer,
            ack=cast("AckMode", options.ack),
            receipts=options.receipts,
            selector=options.selector,
            durable=options.durable,
            headers=options.headers,
        )
        self._receiver.start()

    def open(self) -> SpoolReader:
        """Return the spool, waiting for another process that creates it; raises SpoolError."""
        self.ensure()
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return self._options.open()
            except SpoolError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_LOOK_S)

    def drain(self) -> None:
        """Wait until the broker is connected, and has sent no message for a second.

        Raises :class:`~stompkit.spark.session.SparkError` if no broker answers.
        """
        if self._receiver is None:
            return
        deadline = time.monotonic() + _PATIENCE_S
        while not (status := self._receiver.status()).connected:
            self.ensure()
            if time.monotonic() >= deadline:
                raise SparkError(status.problem or "no broker answers")
            time.sleep(_LOOK_S)
        received = -1
        quiet_since = 0.0
        while True:
            self.ensure()
            status = self._receiver.status()
            now = time.monotonic()
            if status.received + status.duplicates != received:
                received, quiet_since = status.received + status.duplicates, now
            elif now - quiet_since >= _QUIET_S:
                return
            time.sleep(_LOOK_S)

    def close(self) -> None:
        """Stop receiving."""
        if self._receiver is not None:
            self._receiver.stop()
            self._receiver.join(_PATIENCE_S)
        if self._writer is not None:
            self._writer.close()
