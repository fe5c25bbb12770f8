"""Transactions of messages that no server would send."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.replication.sources.postgres._changes import Assembler, Transaction
from stompkit.replication.sources.postgres.pgoutput import PgoutputError, Record
from tests.replication.sources.postgres.test_pgoutput import RECORDS, written

_BEGIN = b"B" + bytes(8 + 8) + b"\x00\x00\x00\x07"
_COMMIT = b"C\x00" + bytes(8) + b"\x00\x00\x00\x00\x00\x00\x00\x09" + bytes(8)
#: public.t, whose key is the integer ``id``.
_RELATION = b"R\x00\x00\x00\x01public\0t\0d\x00\x01\x01id\0\x00\x00\x00\x17\xff\xff\xff\xff"
_INSERT = b"I\x00\x00\x00\x01N\x00\x01t\x00\x00\x00\x0242"


def _assembler() -> Assembler:
    return Assembler(lambda schema, table: True, lambda relation: None, {})


def _fed(*messages: bytes) -> list[Transaction]:
    assembler = _assembler()
    found = [assembler.feed(message) for message in messages]
    return [transaction for transaction in found if transaction is not None]


def test_transaction_is_put_together_without_a_catalogue() -> None:
    (transaction,) = _fed(_BEGIN, _RELATION, _INSERT, _COMMIT)
    assert (transaction.xid, transaction.end_lsn) == (7, 9)
    assert transaction.time == datetime(2000, 1, 1, tzinfo=UTC)
    assert [change.key for change in transaction.changes] == [{"id": 42}]


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([_BEGIN, _BEGIN], "inside another"),
        ([_COMMIT], "has not begun"),
        ([_RELATION, _INSERT], "outside of a transaction"),
        ([_BEGIN, _INSERT], "relation 1 was not described"),
        ([_BEGIN, b"T\x00\x00\x00\x01\x00\x00\x00\x00\x05"], "relation 5 was not described"),
        ([_BEGIN, _RELATION, b"I\x00\x00\x00\x01N\x00\x02nn"], "2 values for 1 columns"),
        (
            [_BEGIN, _RELATION, b"I\x00\x00\x00\x01N\x00\x01t\x00\x00\x00\x06secret"],
            "column id of public.t has a value that is none",
        ),
    ],
)
def test_messages_that_make_no_sense_are_a_problem(messages: list[bytes], complaint: str) -> None:
    with pytest.raises(PgoutputError, match=complaint) as raised:
        _fed(*messages)
    assert "secret" not in str(raised.value)


@given(st.lists(RECORDS, max_size=8))
def test_any_messages_are_transactions_or_a_problem(records: list[Record]) -> None:
    assembler = _assembler()
    try:
        for record in records:
            assembler.feed(written(record))
    except PgoutputError as problem:
        assert str(problem)
