"""Rows as messages to a broker.

=================  ==============================================================================
``body``           or ``value``: text or bytes of the message
``destination``    destination; by default that of the option ``destination``
``headers``        map of texts
``content_type``   by default ``text/plain`` for text
``event_id``       id by which receivers recognise duplicates
=================  ==============================================================================

Other columns of the source are ignored, and so are headers that the broker sets. A task ends when
the broker has confirmed all of its messages. A retried task sends them again with the same
``event-id``. For a stream the id consists of query, batch, task, row and a digest of the message.
Otherwise it is a digest of the write, task, row and message. Another write of equal rows has other
ids. A batch in ``foreachBatch`` may be repeated, so all of its writes count as one: if two of them
have equal rows, these need the column ``event_id``.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructType,
)

from stompkit.spark.java import SparkError
from stompkit.spark.stream.options import SinkOptions

__all__ = ["BatchWriter", "Sent", "StreamWriter"]

_BODIES: Final = ("body", "value")
_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "body": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "destination": (StringType(),),
    "headers": (MapType(StringType(), StringType()),),
    "content_type": (StringType(),),
    "event_id": (StringType(),),
}
#: Columns of the source that a new message does not use.
_IGNORED: Final = frozenset(("_partition", "_ordinal", "_received", "message_id"))
#: Headers that describe the received message, and are not sent.
_OF_BROKERS: Final = frozenset(
    (
        "ack",
        "content-length",
        "destination",
        "message-id",
        "receipt",
        "receipt-id",
        "redelivered",
        "subscription",
        "transaction",
    )
)
#: Maximum time in seconds to wait for a connection, and for the receipts of a group.
_CONNECT_S: Final = 30.0
_CONFIRM_S: Final = 120.0
#: Number of messages sent together, and maximum number of unconfirmed groups.
_GROUP: Final = 200
_MOST_GROUPS: Final = 20


@dataclass
class Sent(WriterCommitMessage):
    """The result of a task whose messages are confirmed."""

    messages: int


class _Packet(NamedTuple):
    destination: str
    headers: dict[str, str]
    body: bytes


class _Names:
    """Event ids that are the same when a task is retried, and unique to a write."""

    def __init__(self, write: str) -> None:
        """Start numbering; ``write`` is unique to the write of the task."""
        self._write = write
        context = TaskContext.get()
        self._row = -1
        self._task = 0 if context is None else context.partitionId()
        # Spark does not guarantee these properties; ids fall back to digests without them.
        query = context and context.getLocalProperty("sql.streaming.queryId")
        batch = context and context.getLocalProperty("streaming.sql.batchId")
        self._stream = f"{query}-{batch}" if query and batch else ""

    def next(self, destination: str, headers: Mapping[str, str], body: bytes) -> str:
        """Return the id of the next row without id."""
        self._row += 1
        place = f"{self._task}-{self._row}"
        # The digest includes the content: a retried task may receive its rows in another order, a
        # batch may be written in several parts, and no row may be mistaken for another one.
        name = self._stream or self._write
        told = repr((name, place, destination, sorted(headers.items()))).encode()
        digest = hashlib.sha256(told + body).hexdigest()
        return f"{self._stream}-{place}-{digest[:8]}" if self._stream else digest[:32]


class _Writer:
    """Common code of both writers."""

    def __init__(self, options: SinkOptions, schema: StructType, write: str) -> None:
        """Check the columns; raises :class:`~stompkit.spark.session.SparkError`.

        ``write`` is unique to the write; empty if each attempt of a task counts as a separate
        write.
        """
        self._options: Final = options
        self._write: Final = write
        kinds = {
            field.name: field.dataType for field in schema.fields if field.name not in _IGNORED
        }
        for name, kind in kinds.items():
            if name not in _TYPES:
                raise SparkError(
                    f"the sink stomp has no use for the column {name}: select those that it takes, "
                    f"{', '.join(_TYPES)}"
                )
            if not any(isinstance(kind, type(each)) for each in _TYPES[name]):
                raise SparkError(f"the column {name} is {kind.simpleString()}: it cannot be sent")
        bodies = [name for name in _BODIES if name in kinds]
        if len(bodies) != 1:
            raise SparkError("the sink stomp needs a column body, or value, and not both")
        if "destination" not in kinds and not options.destination:
            raise SparkError("the sink stomp needs the option or the column destination")
        self._body: Final = bodies[0]

    def send(self, batches: Iterable[pa.RecordBatch]) -> Sent:
        """Send rows, and wait for their confirmation; raises the errors of sending."""
        sent = 0
        names = _Names(self._write or uuid4().hex)
        waiting: deque[Future[None]] = deque()
        link = self._options.broker.link(receipts=self._options.receipts)
        with link:
            link.wait_connected(_CONNECT_S)
            for destination, packets in self._groups(batches, names):
                waiting.append(link.send(destination, packets))
                sent += len(packets)
                if len(waiting) > _MOST_GROUPS:
                    waiting.popleft().result(_CONFIRM_S)
            for future in waiting:
                future.result(_CONFIRM_S)
        return Sent(sent)

    def _groups(
        self, batches: Iterable[pa.RecordBatch], names: _Names
    ) -> Iterator[tuple[str, list[_Packet]]]:
        """Yield groups of consecutive messages with one destination."""
        for batch in batches:
            for at in range(0, batch.num_rows, _GROUP):
                packets = self._packets(batch.slice(at, _GROUP), names)
                for destination, some in groupby(packets, key=lambda each: each.destination):
                    yield destination, list(some)

    def _packets(self, batch: pa.RecordBatch, event_ids: _Names) -> Iterator[_Packet]:
        columns = {
            name: batch.column(name).to_pylist()
            for name in batch.schema.names
            if name not in _IGNORED
        }
        names = tuple(columns)
        for values in zip(*columns.values(), strict=True):
            yield self._packet(dict(zip(names, values, strict=True)), event_ids)

    def _packet(self, row: Mapping[str, Any], event_ids: _Names) -> _Packet:
        destination = row.get("destination") or self._options.destination
        if not destination:
            raise SparkError("a row has no destination, and there is no option destination")
        body = row[self._body]
        headers = dict(self._options.headers)
        headers.update(
            (name, value)
            for name, value in row.get("headers") or ()
            if name not in _OF_BROKERS and value is not None
        )
        if content_type := row.get("content_type"):
            headers["content-type"] = content_type
        if isinstance(body, str):
            headers.setdefault("content-type", "text/plain")
            body = body.encode()
        body = b"" if body is None else body
        event_id = row.get("event_id") or headers.get("event-id")
        headers["event-id"] = event_id or event_ids.next(destination, headers, body)
        return _Packet(destination, headers, body)


class BatchWriter(DataSourceArrowWriter):
    """Sends a batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Check the columns; raises :class:`~stompkit.spark.session.SparkError`."""
        # Created once by the driver, and sent to all tasks and their retries.
        self._writer: Final = _Writer(options, schema, uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of a task."""
        return self._writer.send(iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """Sends a stream."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Check the columns; raises :class:`~stompkit.spark.session.SparkError`."""
        # Without Spark's batch names duplicates in another attempt cannot be recognised: sending
        # twice is better than not at all.
        self._writer: Final = _Writer(options, schema, "")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of a task."""
        return self._writer.send(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: the tasks have received all confirmations."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: sent messages cannot be withdrawn; a retry uses the same ids."""
