"""The format ``stomp``: what a spool has as rows, and rows as messages to a broker.

A stream or a batch reads a spool, by ordinals, so that a batch that is tried again has the same
rows. With ``spool`` something else fills it, such as ``stompkit spool``. With ``hosts`` and
``destinations`` a stream fills it itself, as long as it runs, unless somebody else does; a batch
receives what the broker has.

======================================  =========================================================
``spool``                               the folder; with hosts by default one below XDG_STATE_HOME
``hosts``                               ``HOST:PORT``, or several with commas: failover
``destinations``                        one or several with commas; ``destination`` is the same
``login``, ``passcode``                 of the brokers
``virtualHost``
``tls``, ``tlsCa``                      STOMP over TLS; a folder of certificates of authorities
``selector``, ``durable``, ``ack``      of the subscriptions: see the receiver of the spool
``receipts``                            ``false`` for brokers that have none
``headers``                             further ones of SUBSCRIBE, a JSON object
``partitions``                          of a spool that is made: 1
``startingOffsets``                     ``earliest`` (the default), ``latest``, or ordinals
                                        ``{"0": 1200, "1": -2}``; -2 is earliest and -1 latest
``startingTimestamp``                   instead: ISO 8601, or milliseconds since 1970
``endingOffsets``, ``endingTimestamp``  of a batch; by default ``latest``
``failOnDataLoss``                      whether what retention has removed is an error: ``true``
``minPartitions``                       at least so many tasks
``maxRecordsPerTrigger``                messages of a micro-batch: 100000
``maxBytesPerTrigger``                  octets of a micro-batch: 67108864, which are 64 MiB
``payload``                             ``raw``, ``changeset``: a row for each change, or
                                        ``ranges``, for ``apply_changes`` alone
``reader``                              a name, for which retention waits
``gap``                                 changesets that are missing: ``stop`` with an error,
                                        ``wait``, or ``skip`` them; not of ``raw``
``gapTimeout``                          for how long they are waited for, in seconds: 30
``beginningWait``                       how long number 1 of a new origin is waited for: 2
``pushFilters``                         of a batch: ``true`` where Spark's configuration has
                                        ``spark.sql.python.filterPushdown.enabled``, too
======================================  =========================================================

The starting options are for a stream without checkpoint only. One with ``latest`` or a time should
have a ``reader``: else a crash in its first batch moves the start.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from stompkit.spark._batch import BatchReader, FilteringReader
from stompkit.spark._columns import CHANGES, RANGES, RAW
from stompkit.spark._java import SparkProblem
from stompkit.spark._options import SinkOptions, SourceOptions
from stompkit.spark._stream import StreamReader
from stompkit.spark.sink import BatchWriter, StreamWriter

__all__ = ["StompDataSource"]


class StompDataSource(DataSource):
    """Spark's format ``stomp``."""

    @classmethod
    def name(cls) -> str:
        """What it is called in ``format()``."""
        return "stomp"

    def schema(self) -> StructType:
        """The columns of what is read."""
        return _schema(SourceOptions.parse(self.options))

    def reader(self, schema: StructType) -> BatchReader:
        """Of a batch."""
        options = self._source_options(schema)
        return FilteringReader(options) if options.push_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> StreamReader:
        """Of a stream."""
        return StreamReader(self._source_options(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001  # Spark's
        """Of a batch."""
        if overwrite:
            raise SparkProblem("what was sent can't be overwritten: use mode('append')")
        return BatchWriter(SinkOptions.parse(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001
        """Of a stream."""
        return StreamWriter(SinkOptions.parse(self.options), schema)

    def _source_options(self, schema: StructType) -> SourceOptions:
        options = SourceOptions.parse(self.options)
        if schema != _schema(options):
            raise SparkProblem("the columns of the format stomp are given: leave out schema()")
        return options


def _schema(options: SourceOptions) -> StructType:
    return {"raw": RAW, "changeset": CHANGES, "ranges": RANGES}[options.payload].spark
