"""Packets and events of the log that are read without the log library."""

from __future__ import annotations

import io
import random
import socket
import struct
from typing import Any

import pymysql
import pymysqlreplication
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysqlreplication.event import GtidEvent, MariadbGtidEvent, QueryEvent, XidEvent
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from stompkit.replication.sources.mysql._binlog import events
from stompkit.replication.sources.mysql._binlog.blocks import PacketReader
from stompkit.replication.sources.mysql._binlog.events import LogEvent
from stompkit.replication.sources.mysql._binlog.packets import LogConnection
from stompkit.replication.sources.mysql._dsn import Dsn
from stompkit.replication.sources.mysql._positions import Position
from stompkit.replication.sources.mysql._reader import Stream
from tests.replication.sources.mysql.reading import Database


class _Trickle(io.RawIOBase):
    """Bytes that arrive in pieces of random sizes."""

    def __init__(self, data: bytes, seed: int, most: int) -> None:
        self._data = io.BytesIO(data)
        self._sizes = random.Random(seed)
        self._most = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), self._sizes.randint(1, self._most))
        return self._data.readinto(memoryview(buffer)[:size])


def _packets(contents: list[bytes], number: int) -> bytes:
    made = []
    for content in contents:
        pieces = [content[at : at + 0xFFFFFF] for at in range(0, len(content) + 1, 0xFFFFFF)]
        for piece in pieces:
            made.append(struct.pack("<I", number << 24 | len(piece)) + piece)
            number = (number + 1) % 256
    return b"".join(made)


@given(
    st.lists(st.binary(max_size=300), max_size=400),
    st.integers(0, 255),
    st.integers(0, 2**32),
    st.sampled_from([1, 7, 300, 10_000]),
)
def test_packets_do_not_depend_on_the_pieces_in_which_they_arrive(
    contents: list[bytes], number: int, seed: int, most: int
) -> None:
    raw = _Trickle(_packets(contents, number), seed, most)
    reader = PacketReader(io.BufferedReader(raw), number)
    assert [reader.packet() for _ in contents] == contents
    with pytest.raises(ConnectionError, match="closed"):
        reader.packet()


@pytest.mark.parametrize("size", [0xFFFFFE, 0xFFFFFF, 0x1000000, 2 * 0xFFFFFF])
def test_a_packet_beyond_the_limit_of_the_protocol_is_joined(size: int) -> None:
    contents = [b"a", bytes(size), b"b"]
    reader = PacketReader(io.BufferedReader(io.BytesIO(_packets(contents, 1))), 1)
    assert [reader.packet() for _ in contents] == contents


def test_a_lost_packet_is_found() -> None:
    data = _packets([b"a"], 1) + _packets([b"b"], 3)
    reader = PacketReader(io.BufferedReader(io.BytesIO(data)), 1)
    reader.packet()
    with pytest.raises(ConnectionError, match="packet 3 follows where 2 is due"):
        reader.packet()


def test_a_log_in_is_no_request_for_the_log() -> None:
    """The answer to a log-in begins with random bytes, which may be those of the command."""
    near, far = socket.socketpair()
    with near, far:
        connection = LogConnection(user="a", defer_connect=True)
        for name, value in (("_sock", near), ("_current_timeout", None)):
            setattr(connection, name, value)
        for command in (0x12, 0x1E):
            connection._write_bytes(b"\x14\0\0\x03" + bytes((command,)) * 20)
        # Otherwise it would wait for an event.
        assert connection.take() is None


def test_events_are_those_of_the_library(database: Database) -> None:
    """The log library parses the same events, with objects for all of their parts."""
    columns = ", ".join(f"c{number} INT" for number in range(20))
    database.run(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})", "CREATE TABLE u (a TEXT)")
    file, position = database.end()
    database.run(
        "INSERT INTO t (id, c1, c19) VALUES (1, 2, 3), (2, NULL, NULL)",
        "UPDATE t SET c7 = 5",
        "SET SESSION binlog_row_image = MINIMAL",
        "UPDATE t SET c7 = 6, c16 = 1 WHERE id = 2",
        "BEGIN",
        "INSERT INTO u VALUES ('a')",
        "DELETE FROM t WHERE id = 1",
        "COMMIT",
        "CREATE TABLE v (id INT)",
        "DELETE FROM u",
        "SET SESSION binlog_row_image = FULL",
    )
    dsn = Dsn.parse(database.url)
    reader = pymysqlreplication.BinLogStreamReader(
        dsn.settings(),
        server_id=4243,
        resume_stream=True,
        log_file=file,
        log_pos=position,
        pymysql_wrapper=_connect,
    )
    expected = [each for each in map(_of_library, reader) if each]
    reader.close()
    stream = Stream(
        dsn,
        Position(file=file, pos=position, by_place=True),
        is_mariadb=not database.is_mysql,
        server_id=4244,
        is_blocking=False,
        heartbeat_s=1.0,
    )
    found = [_own(each) for each in stream.events() if isinstance(each, LogEvent)]
    stream.close()
    assert found == expected
    assert {each[0] for each in found} >= {
        "gtid",
        "table",
        "writes",
        "updates",
        "deletes",
        "commit",
    }


def _connect(*, db: str | None = None, **settings: Any) -> Any:
    """Connect with the driver's newer name of the library's argument."""
    return pymysql.connect(database=db, **settings)


def _of_library(event: Any) -> tuple[Any, ...] | None:
    common = event.timestamp, event.packet.log_pos
    match event:
        case GtidEvent() | MariadbGtidEvent():
            return "gtid", *common, event.gtid
        case QueryEvent(query="BEGIN"):
            return "begin", *common
        case XidEvent():
            return "commit", *common
        case TableMapEvent():
            return "table", *common, event.table_id, event.schema, event.table
        case WriteRowsEvent() | DeleteRowsEvent() | UpdateRowsEvent():
            before = event.columns_present_bitmap
            after = getattr(event, "columns_present_bitmap2", before)
            kind = type(event).__name__.removesuffix("RowsEvent").lower() + "s"
            shape = event.number_of_columns, before, after
            return kind, *common, event.table_id, *shape, event.packet.read_bytes
    return None


def _own(event: LogEvent) -> tuple[Any, ...]:
    common = event.timestamp, event.log_pos
    if event.kind == events.MYSQL_GTID:
        return "gtid", *common, events.mysql_gtid(event)
    if event.kind == events.MARIADB_GTID:
        return "gtid", *common, events.mariadb_gtid(event)
    if event.kind == events.BEGIN:
        return "begin", *common
    if event.kind == events.COMMIT:
        return "commit", *common
    if event.kind == events.TABLE_MAP:
        body = event.data[events.BODY_AT : event.end]
        return "table", *common, events.table_number(event), *events.table_in(body)
    kinds = {events.WRITES: "writes", events.UPDATES: "updates", events.DELETES: "deletes"}
    (kind,) = (name for types, name in kinds.items() if event.kind in types)
    *shape, at = events.rows_in(event)
    return kind, *common, events.table_number(event), *shape, at - events.BODY_AT
