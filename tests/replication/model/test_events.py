"""Changesets: their JSON, their hash, and invalid ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.replication.model.events import (
    FORMAT,
    Changeset,
    EventError,
    Revision,
    RowChange,
    Source,
    decode,
    decode_head,
    encode,
    encode_parts,
    make_changeset,
)
from stompkit.replication.model.values import InvalidValueError
from tests.replication.made import changesets

SOURCE = Source(kind="mysql", server="db1", position="0-1-7")
UPDATE = RowChange(
    table="orders",
    schema="shop",
    action="update",
    key={"id": 1},
    before={"id": 1, "price": Decimal("9.50")},
    after={"id": 1, "price": Decimal("10.50")},
)


def a_changeset(*changes: RowChange) -> Changeset:
    """Return a changeset that is always the same."""
    return make_changeset(
        "shop", 7, changes, SOURCE, id="c7", timestamp=datetime(2026, 11, 21, 12, tzinfo=UTC)
    )


@given(changesets)
def test_changeset_comes_back_as_what_it_was(changeset: Changeset) -> None:
    assert decode(encode(changeset)) == changeset


@given(changesets)
def test_one_part_is_all_of_it(changeset: Changeset) -> None:
    assert encode_parts(changeset) == [encode(changeset)]
    assert encode_parts(changeset, 1_000_000) == [encode(changeset)]


@given(changesets)
def test_changes_that_are_not_decoded_are_what_they_were(changeset: Changeset) -> None:
    head = decode_head(encode(changeset))
    assert head.decoded() == changeset
    assert head.count == len(changeset.changes)


@given(changesets, st.integers(1, 2_000))
def test_parts_are_the_same_without_decoding(changeset: Changeset, most: int) -> None:
    head = decode_head(encode(changeset))
    assert encode_parts(head, most) == encode_parts(changeset, most)
    assert encode_parts(head) == encode_parts(changeset)


def test_head_of_a_changeset_can_be_replaced() -> None:
    changeset = a_changeset(UPDATE, UPDATE)
    head = msgspec.structs.replace(decode_head(encode(changeset)), origin="café", sequence=2**60)
    meant = msgspec.structs.replace(changeset, origin="café", sequence=2**60)
    assert encode_parts(head) == [encode(meant)]


def test_changes_are_checked_when_they_are_decoded() -> None:
    octets = encode(a_changeset(UPDATE)).replace(b'"update"', b'"upset"')
    with pytest.raises(EventError, match="no changeset: Invalid enum value 'upset'"):
        decode_head(octets).decoded()


def test_form() -> None:
    assert json.loads(encode(a_changeset(UPDATE))) == {
        "format": FORMAT,
        "id": "c7",
        "origin": "shop",
        "sequence": 7,
        "timestamp": "2026-11-21T12:00:00Z",
        "source": {"kind": "mysql", "server": "db1", "position": "0-1-7"},
        "changes": [
            {
                "table": "orders",
                "schema": "shop",
                "action": "update",
                "key": {"id": 1},
                "before": {"id": 1, "price": {"$decimal": "9.50"}},
                "after": {"id": 1, "price": {"$decimal": "10.50"}},
            }
        ],
    }


def test_form_of_a_revision() -> None:
    revision = Revision(trunk="shop", hlc=1_795_262_400_000_000, context={"b": 2, "a": 1})
    told = msgspec.structs.replace(a_changeset(), revision=revision)
    assert json.loads(encode(told)) == {
        **json.loads(encode(a_changeset())),
        "revision": {"trunk": "shop", "hlc": 1_795_262_400_000_000, "context": {"a": 1, "b": 2}},
    }
    turned = msgspec.structs.replace(revision, context={"a": 1, "b": 2})
    assert encode(msgspec.structs.replace(told, revision=turned)) == encode(told)
    signed = msgspec.structs.replace(revision, author="Anna", comment="New prices")
    octets = encode(msgspec.structs.replace(told, revision=signed))
    assert octets.endswith(b',"author":"Anna","comment":"New prices"}}')


def test_revision_is_part_of_what_is_made() -> None:
    revision = Revision(trunk="shop", hlc=1, context={})
    assert make_changeset("shop", 1, [], SOURCE, revision=revision).revision == revision
    assert make_changeset("shop", 1, [], SOURCE).revision is None


def test_equal_changesets_have_one_form_and_one_hash() -> None:
    """The order of columns makes no difference."""
    turned = msgspec.structs.replace(UPDATE, after=dict(reversed((UPDATE.after or {}).items())))
    one, other = a_changeset(UPDATE), a_changeset(turned)
    assert list(turned.after or {}) != list(UPDATE.after or {})
    assert one == other
    assert encode(one) == encode(other)
    assert one.hash == other.hash


def test_hash_is_of_everything() -> None:
    one = a_changeset(UPDATE)
    others = [
        a_changeset(),
        a_changeset(UPDATE, UPDATE),
        a_changeset(msgspec.structs.replace(UPDATE, after=None)),
        msgspec.structs.replace(one, parents=("c6",)),
        msgspec.structs.replace(one, sequence=8),
        msgspec.structs.replace(one, revision=Revision(trunk="t", hlc=1, context={})),
    ]
    assert len({each.hash for each in [one, *others]}) == 7


def test_changeset_of_now_has_an_id_of_its_own() -> None:
    before = datetime.now(UTC)
    one, other = (make_changeset("shop", 1, [UPDATE], SOURCE) for _ in range(2))
    assert one.id != other.id
    assert before <= one.timestamp <= datetime.now(UTC)
    assert one.changes == (UPDATE,)


def test_name_of_a_table() -> None:
    assert UPDATE.name == "shop.orders"
    assert msgspec.structs.replace(UPDATE, schema="").name == "orders"


def test_identity_is_the_row_and_not_what_became_of_it() -> None:
    deleted = msgspec.structs.replace(UPDATE, action="delete", after=None)
    assert deleted.identity == UPDATE.identity
    others = [
        msgspec.structs.replace(UPDATE, key={"id": 2}),
        msgspec.structs.replace(UPDATE, key={"id": "1"}),
        msgspec.structs.replace(UPDATE, table="order"),
        msgspec.structs.replace(UPDATE, schema="shop2"),
    ]
    assert len({each.identity for each in [UPDATE, *others]}) == 5
    pair = msgspec.structs.replace(UPDATE, key={"a": 1, "b": 2})
    assert pair.identity == msgspec.structs.replace(UPDATE, key={"b": 2, "a": 1}).identity


def test_value_without_a_form_is_told_with_its_place() -> None:
    change = msgspec.structs.replace(UPDATE, after={"colour": object()})
    with pytest.raises(
        InvalidValueError, match=r"table shop\.orders: column colour: a column cannot"
    ):
        encode(a_changeset(change))


def changed(**fields: object) -> bytes:
    """Return the JSON of a changeset with other members."""
    return json.dumps({**json.loads(encode(a_changeset(UPDATE))), **fields}).encode()


@pytest.mark.parametrize(
    ("octets", "told"),
    [
        (b"", "this is no changeset: "),
        (b"\xff", "this is no changeset: "),
        (b"[]", "this is no changeset: "),
        (b'{"format": "1"}', "this is no changeset: "),
        (changed(format=2), "this is format 2 of a changeset, and 1 is known"),
        (changed(sequence="7"), "this is no changeset: .*sequence"),
        (changed(revision={"trunk": "t", "hlc": 1}), "this is no changeset: .*context"),
        (changed()[:-1] + b', "more": ' + b"[" * 100_000, "this is no changeset: .*recursion"),
        (changed(changes=[{"table": "t"}]), "this is no changeset: .*action"),
        (
            changed(changes=[{"table": "t", "action": "merge", "key": {}}]),
            "this is no changeset: .*merge",
        ),
        (
            changed(changes=[{"table": "t", "action": "write", "key": {"id": [1]}}]),
            "this is no changeset: column id: a list stands for no value",
        ),
    ],
)
def test_octets_that_are_no_changeset(octets: bytes, told: str) -> None:
    with pytest.raises(EventError, match=told):
        decode(octets)


def test_members_of_later_versions_are_passed_over() -> None:
    """A format stays the same if existing members keep their meaning."""
    assert decode(changed(colour="red")) == a_changeset(UPDATE)
