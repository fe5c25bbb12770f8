"""Encoding of keys as messages."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.replication.model.values import InvalidValueError
from stompkit.replication.workers.messages import (
    MessageError,
    check_topic,
    decode_keys,
    decode_parts,
    encode_keys,
    key_octets,
    topic_frame,
)
from tests.replication.made import values

columns = values.filter(lambda value: not isinstance(value, (list, dict)))
keys = columns | st.lists(columns, min_size=2, max_size=3).map(tuple)


def typed(key: Any) -> Any:
    """Return a key that equals keys of the same types only."""
    if isinstance(key, tuple):
        return tuple(map(typed, key))
    # Values that differ in digits or zone are compared by their representation.
    return type(key), repr(key) if not isinstance(key, frozenset) else key


@given(st.lists(keys, max_size=4))
def test_keys_come_out_as_they_went_in(listed: list[Any]) -> None:
    """Several columns, numbers and equal texts, dates, bytes..."""
    found = decode_keys(encode_keys("users_write", listed))
    assert found.topic == "users_write"
    assert len(found.keys) == len(listed)
    for key, expected in zip(found.keys, listed, strict=True):
        assert key_octets(key) == key_octets(expected)


@pytest.mark.parametrize(
    "key", [(2, 3), "hello world", "1", 1, None, ("a b", 1), "", Decimal("1.50"), UUID(int=7)]
)
def test_a_key_is_one_key_of_its_type(key: Any) -> None:
    """Bug of Meepo: (2, 3) arrived as two keys "(2," and "3)", "hello world" as two, 1 as text."""
    assert typed(decode_keys(encode_keys("t_write", [key])).keys) == typed((key,))


def test_octets_of_keys_are_different_for_different_keys() -> None:
    listed = [1, "1", 1.5, "1.5", Decimal(1), (1, 2), (2, 1), "(1, 2)", (1, "2"), None, True, b"1"]
    assert len({key_octets(key) for key in listed}) == len(listed)


def test_a_list_and_a_tuple_are_the_same_key() -> None:
    assert key_octets([1, "a"]) == key_octets((1, "a"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"user_write 1 2",
        b"[]",
        b"\xff\xfe",
        b'{"version":1}',
        b'{"version":1,"topic":"t","keys":7}',
        b'{"version":1,"topic":7,"keys":[]}',
        b'{"version":1,"topic":"t","keys":[{"$decimal":"x"}]}',
        b'{"version":1,"topic":"t","keys":[[[1]]]}',
        b'{"version":1,"topic":"t","keys":[{}]}',
        b'{"version":1,"topic":"t","keys":' + b"[" * 100_000,
    ],
)
def test_what_is_no_message_is_a_problem(body: bytes) -> None:
    with pytest.raises(MessageError, match="these are no keys"):
        decode_keys(body)


def test_a_newer_version_is_told_by_its_number() -> None:
    body = msgspec.json.encode({"version": 2, "sort": "of"})
    with pytest.raises(MessageError, match="version 2 of keys, and 1 is known"):
        decode_keys(body)


@given(st.binary(max_size=60))
def test_no_octets_raise_anything_else(octets: bytes) -> None:
    try:
        decode_keys(octets)
    except MessageError:
        pass


def test_no_topic_is_the_beginning_of_another() -> None:
    """Bug of Meepo: a subscription to user_update also matched user_update2."""
    assert not topic_frame("user_update2").startswith(topic_frame("user_update"))
    assert topic_frame("user_update").startswith(b"user_update")


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [encode_keys("t_write", [1])],
        [topic_frame("t_write"), encode_keys("t_write", [1]), b""],
        [b"t_write", encode_keys("t_write", [1])],
        [topic_frame("t_update"), encode_keys("t_write", [1])],
    ],
)
def test_parts_that_do_not_fit_together_are_a_problem(parts: list[bytes]) -> None:
    with pytest.raises(MessageError):
        decode_parts(parts)


@pytest.mark.parametrize("topic", ["", "a\0b", 7])
def test_a_topic_is_text_without_zeros(topic: Any) -> None:
    with pytest.raises(ValueError, match="a topic is text"):
        check_topic(topic)


def test_a_key_without_a_form_in_json_is_refused() -> None:
    with pytest.raises(InvalidValueError):
        encode_keys("t_write", [object()])
