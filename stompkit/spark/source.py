"""The format ``stomp``: messages of a spool as rows, and rows as messages to a broker.

A stream or a batch reads a spool by ordinals, so a retried batch has the same rows. With ``spool``
another process fills the spool, such as ``stompkit spool``. With ``hosts`` and ``destinations`` a
stream fills the spool while it runs, unless another process does; a batch receives the messages
present at the broker.

======================================  =========================================================
``spool``                               folder, or URL of a server; with hosts by default a folder
                                        below XDG_STATE_HOME
``spoolToken``                          token of the server
``spoolCa``                             file or folder of CA certificates, for https
``spoolTimeout``                        seconds to wait for a server that is away: 300
``hosts``                               ``HOST:PORT``, or several separated by commas: failover
``destinations``                        one or more, separated by commas; also ``destination``
``login``, ``passcode``                 of the brokers
``virtualHost``
``tls``, ``tlsCa``                      STOMP over TLS; file or folder of CA certificates
``tlsCert``, ``tlsKey``                 files of the client's certificate and its key
``selector``, ``durable``, ``ack``      of the subscriptions: see the receiver of the spool
``receipts``                            ``false`` for brokers without receipts
``headers``                             additional headers of SUBSCRIBE, a JSON object
``partitions``                          number of partitions of a new spool: 1
``startingOffsets``                     ``earliest`` (the default), ``latest``, or ordinals
                                        ``{"0": 1200, "1": -2}``; -2 is earliest and -1 latest
``startingTimestamp``                   instead: ISO 8601, or milliseconds since 1970
``endingOffsets``, ``endingTimestamp``  of a batch; by default ``latest``. With whole offsets of a
                                        checkpoint as both bounds, a batch reads as the stream does
``failOnDataLoss``                      raise an error for messages lost by retention: ``true``
``minPartitions``                       minimum number of tasks
``maxRecordsPerTrigger``                maximum messages per micro-batch: 100000
``maxBytesPerTrigger``                  maximum bytes per micro-batch: 67108864 (64 MiB)
``payload``                             ``raw``, ``changeset``: a row for each change, or
                                        ``ranges``, for ``apply_changes`` alone
``reader``                              name of a reader for which retention keeps messages
``gap``                                 missing changesets: ``stop`` with an error,
                                        ``wait``, or ``skip`` them; not with ``raw``
``gapTimeout``                          maximum wait for them in seconds: 30
``beginningWait``                       maximum wait for number 1 of a new origin in seconds: 2
``pushFilters``                         of a batch: ``true`` if Spark's configuration has
                                        ``spark.sql.python.filterPushdown.enabled``, too
======================================  =========================================================

The starting options apply only to a stream without checkpoint. A stream that starts at ``latest``
or a time should have a ``reader``: otherwise a crash in its first batch moves the start.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from stompkit.spark.java import SparkError
from stompkit.spark.sink import BatchWriter, StreamWriter
from stompkit.spark.stream.batch import BatchReader, FilteringReader
from stompkit.spark.stream.columns import CHANGES, RANGES, RAW
from stompkit.spark.stream.options import SinkOptions, SourceOptions
from stompkit.spark.stream.reader import StreamReader

__all__ = ["StompDataSource"]


class StompDataSource(DataSource):
    """Spark's format ``stomp``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format()``."""
        return "stomp"

    def schema(self) -> StructType:
        """Return the columns of the rows."""
        return _schema(SourceOptions.parse(self.options))

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch."""
        options = self._source_options(schema)
        return FilteringReader(options) if options.push_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader of a stream."""
        return StreamReader(self._source_options(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001  # Spark's
        """Return the writer of a batch."""
        if overwrite:
            raise SparkError("what was sent cannot be overwritten: use mode('append')")
        return BatchWriter(SinkOptions.parse(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001
        """Return the writer of a stream."""
        return StreamWriter(SinkOptions.parse(self.options), schema)

    def _source_options(self, schema: StructType) -> SourceOptions:
        options = SourceOptions.parse(self.options)
        if schema != _schema(options):
            raise SparkError("the columns of the format stomp are given: leave out schema()")
        return options


def _schema(options: SourceOptions) -> StructType:
    return {"raw": RAW, "changeset": CHANGES, "ranges": RANGES}[options.payload].spark
