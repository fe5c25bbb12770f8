"""The decoder of pgoutput: recorded, generated and broken input."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.replication.sources.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Column,
    Commit,
    Delete,
    Insert,
    Message,
    Origin,
    PgoutputError,
    Record,
    Relation,
    Row,
    Truncate,
    Type,
    Update,
    decode,
    relation_of,
)

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def _octets(text: str) -> bytes:
    return bytes.fromhex(text)


#: Bytes, written by hand from the tables of the documentation, and their meaning.
GOLDEN: list[tuple[str, bytes, Record]] = [
    (
        "begin",
        _octets("42 00000001 0a0b0c0d 000000003b9aca00 000002e5"),
        Begin(0x1_0A0B0C0D, _EPOCH + timedelta(seconds=1000), 741),
    ),
    (
        "commit",
        _octets("43 00 0000000000000010 0000000000000040 ffffffffffffffff"),
        Commit(0x10, 0x40, _EPOCH - timedelta(microseconds=1)),
    ),
    ("origin", b"O" + bytes(7) + b"\x07" + b"elsewhere\0", Origin(7, "elsewhere")),
    (
        "relation",
        b"R\x00\x00\x40\x01shop\0orders\0d\x00\x02"
        b"\x01id\0\x00\x00\x00\x17\xff\xff\xff\xff"
        b"\x00pr\xc3\xa4is\0\x00\x00\x06\xa4\x00\x0a\x00\x06",
        Relation(
            0x4001,
            "shop",
            "orders",
            "d",
            (Column("id", 23, -1, True), Column("präis", 1700, 0x000A0006, False)),
        ),
    ),
    (
        "relation of the catalogue",
        b"R\x00\x00\x00\x01\0t\0n\x00\x00",
        Relation(1, "pg_catalog", "t", "n", ()),
    ),
    ("type", b"Y\x00\x00\x40\x02public\0mood\0", Type(0x4002, "public", "mood")),
    (
        "insert",
        b"I\x00\x00\x40\x01N\x00\x03t\x00\x00\x00\x0242nt\x00\x00\x00\x00",
        Insert(0x4001, (b"42", None, b"")),
    ),
    (
        "update",
        b"U\x00\x00\x40\x01N\x00\x02t\x00\x00\x00\x011u",
        Update(0x4001, None, False, (b"1", UNCHANGED)),
    ),
    (
        "update of a key",
        b"U\x00\x00\x40\x01K\x00\x02t\x00\x00\x00\x011nN\x00\x02t\x00\x00\x00\x012n",
        Update(0x4001, (b"1", None), True, (b"2", None)),
    ),
    (
        "update with the whole row",
        b"U\x00\x00\x40\x01O\x00\x01t\x00\x00\x00\x011N\x00\x01t\x00\x00\x00\x012",
        Update(0x4001, (b"1",), False, (b"2",)),
    ),
    (
        "delete by key",
        b"D\x00\x00\x40\x01K\x00\x01t\x00\x00\x00\x011",
        Delete(0x4001, (b"1",), True),
    ),
    (
        "delete with the whole row",
        b"D\x00\x00\x40\x01O\x00\x01n",
        Delete(0x4001, (None,), False),
    ),
    (
        "truncate",
        b"T\x00\x00\x00\x02\x03\x00\x00\x40\x01\x00\x00\x40\x02",
        Truncate((0x4001, 0x4002), True, True),
    ),
    (
        "message",
        b"M\x01\x00\x00\x00\x00\x00\x00\x00\x09app\0\x00\x00\x00\x02\xff\x00",
        Message(True, 9, "app", b"\xff\x00"),
    ),
]
_EACH = pytest.mark.parametrize(
    ("octets", "record"), [case[1:] for case in GOLDEN], ids=[case[0] for case in GOLDEN]
)


@_EACH
def test_message_as_documented(octets: bytes, record: Record) -> None:
    assert decode(octets) == record


@_EACH
def test_message_that_is_cut_off_anywhere_is_a_problem(octets: bytes, record: Record) -> None:
    for length in range(len(octets)):
        with pytest.raises(PgoutputError):
            decode(octets[:length])


@_EACH
def test_octets_behind_the_end_are_a_problem(octets: bytes, record: Record) -> None:
    with pytest.raises(PgoutputError, match="behind its end"):
        decode(octets + b"\0")


@_EACH
def test_relation_is_known_without_reading_the_row(octets: bytes, record: Record) -> None:
    relation = record.relation if isinstance(record, (Insert, Update, Delete)) else None
    assert relation_of(octets) == relation


@pytest.mark.parametrize(
    ("octets", "name", "columns"),
    [
        (b"R\x00\x00\x00\x01public\0t\xff\0d\x00\x00", r"t\xff", []),
        (b"R\x00\x00\x00\x01s\0t\0d\x00\x01\x00\xfc\0" + bytes(8), "t", [r"\xfc"]),
    ],
)
def test_names_that_are_not_utf_8_are_told_of(octets: bytes, name: str, columns: list[str]) -> None:
    relation = decode(octets)
    assert isinstance(relation, Relation)
    assert (relation.name, [each.name for each in relation.columns]) == (name, columns)
    assert not relation.is_readable


@pytest.mark.parametrize(
    ("octets", "complaint"),
    [
        (b"", "is empty"),
        (b"S\x00\x00\x00\x01\x01", "begins no message"),  # a stream, of version 2
        (b"\xff", "begins no message"),
        (b"I\x00\x00\x40\x01K\x00\x00", "'K' where 'N'"),
        (b"U\x00\x00\x40\x01K\x00\x00K\x00\x00", "'K' where 'N'"),
        (b"D\x00\x00\x40\x01N\x00\x00", "'N' where 'K'"),
        (b"I\x00\x00\x40\x01N\x00\x01b\x00\x00\x00\x01x", "'b' is no kind"),
        (b"I\x00\x00\x40\x01N\x00\x01t\xff\xff\xff\xff", "cut off"),
        (b"I\x00\x00\x40\x01N\xff\xff", "cut off"),
        (b"T\xff\xff\xff\xff\x00", "cut off"),
        (b"B" + bytes(8) + b"\x7f" + b"\xff" * 7 + bytes(4), "no time"),
        (b"M\x00" + bytes(8) + b"p\0\x7f\xff\xff\xffx", "cut off"),
    ],
)
def test_hostile_octets_are_a_problem_that_says_why(octets: bytes, complaint: str) -> None:
    with pytest.raises(PgoutputError, match=complaint):
        decode(octets)


@given(st.binary(max_size=60), st.sampled_from(b"BCORYIUDTM"))
def test_any_octets_are_a_message_or_a_problem(octets: bytes, kind: int) -> None:
    try:
        decode(bytes([kind]) + octets)
    except PgoutputError as problem:
        assert str(problem)


# Generated messages, encoded by the rules of the documentation.

_NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
_OIDS = st.integers(0, 2**32 - 1)
_LSNS = st.integers(0, 2**64 - 1)
_TIMES = st.datetimes(datetime(1000, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))
_ROWS = st.lists(st.none() | st.just(UNCHANGED) | st.binary(max_size=20), max_size=5).map(tuple)
_COLUMNS = st.builds(Column, _NAMES, _OIDS, st.integers(-(2**31), 2**31 - 1), st.booleans())
_SCHEMAS = _NAMES.filter(bool)
RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(Begin, _LSNS, _TIMES, _OIDS),
    st.builds(Commit, _LSNS, _LSNS, _TIMES),
    st.builds(Origin, _LSNS, _NAMES),
    st.builds(
        Relation,
        _OIDS,
        _SCHEMAS,
        _NAMES,
        st.sampled_from("dnfi"),
        st.lists(_COLUMNS, max_size=4).map(tuple),
    ),
    st.builds(Type, _OIDS, _SCHEMAS, _NAMES),
    st.builds(Insert, _OIDS, _ROWS),
    st.builds(Update, _OIDS, st.none(), st.just(False), _ROWS),
    st.builds(Update, _OIDS, _ROWS, st.booleans(), _ROWS),
    st.builds(Delete, _OIDS, _ROWS, st.booleans()),
    st.builds(Truncate, st.lists(_OIDS, max_size=4).map(tuple), st.booleans(), st.booleans()),
    st.builds(Message, st.booleans(), _LSNS, _NAMES, st.binary(max_size=20)),
)


def _name(text: str) -> bytes:
    return text.encode() + b"\0"


def _time(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def _row(row: Row) -> bytes:
    values = [
        b"n" if value is None else b"u" if value is UNCHANGED else b"t" + _counted(value)
        for value in row
    ]
    return struct.pack("!H", len(row)) + b"".join(values)


def _counted(octets: bytes) -> bytes:
    return struct.pack("!I", len(octets)) + octets


def written(record: Record) -> bytes:
    """Return a message, encoded by the rules of the documentation."""
    match record:
        case Begin(lsn, time, xid):
            return b"B" + struct.pack("!QqI", lsn, _time(time), xid)
        case Commit(lsn, end_lsn, time):
            return b"C\0" + struct.pack("!QQq", lsn, end_lsn, _time(time))
        case Origin(lsn, name):
            return b"O" + struct.pack("!Q", lsn) + _name(name)
        case Relation(oid, schema, name, identity, columns):
            head = b"R" + struct.pack("!I", oid) + _name(schema) + _name(name) + identity.encode()
            return head + struct.pack("!H", len(columns)) + b"".join(map(_column, columns))
        case Type(oid, schema, name):
            return b"Y" + struct.pack("!I", oid) + _name(schema) + _name(name)
        case Insert(relation, new):
            return b"I" + struct.pack("!I", relation) + b"N" + _row(new)
        case Update(relation, old, is_key, new):
            before = b"" if old is None else (b"K" if is_key else b"O") + _row(old)
            return b"U" + struct.pack("!I", relation) + before + b"N" + _row(new)
        case Delete(relation, old, is_key):
            return b"D" + struct.pack("!I", relation) + (b"K" if is_key else b"O") + _row(old)
        case Truncate(relations, cascade, restart):
            count = struct.pack("!IB", len(relations), cascade | restart << 1)
            return b"T" + count + struct.pack(f"!{len(relations)}I", *relations)
        case Message(is_transactional, lsn, prefix, content):
            head = b"M" + struct.pack("!BQ", is_transactional, lsn)
            return head + _name(prefix) + _counted(content)


def _column(column: Column) -> bytes:
    end = struct.pack("!Ii", column.type_oid, column.modifier)
    return bytes([column.is_key]) + _name(column.name) + end


@given(RECORDS)
def test_message_comes_back_as_what_was_written(record: Record) -> None:
    assert decode(written(record)) == record


@given(RECORDS, st.data())
def test_any_message_that_is_cut_off_is_a_problem(record: Record, data: st.DataObject) -> None:
    octets = written(record)
    length = data.draw(st.integers(0, len(octets) - 1))
    with pytest.raises(PgoutputError):
        decode(octets[:length])
