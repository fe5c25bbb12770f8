"""Values of columns: decoding returns the encoded value, and invalid values are refused."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given

from stompkit.replication.model.values import (
    Interval,
    InvalidValueError,
    Json,
    NoDate,
    Value,
    document,
    from_json,
    interval,
    is_carried,
    row_from_json,
    row_to_json,
    to_json,
)
from tests.replication.made import documents, intervals, rows, values


class Colour(StrEnum):
    """A text with a name."""

    RED = "red"


class Shade(str, Enum):  # noqa: UP042
    """A text whose ``str()`` is another one."""

    DARK = "dark"


class Rank(IntEnum):
    """A number with a name."""

    FIRST = 1


class Markup(str):
    """A text of a library."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"<{self!r}>"


class Price(Decimal):
    """A number that shows its currency."""

    def __str__(self) -> str:
        return f"{super().__str__()} EUR"


class Share(float):
    """A number of a library."""


def nested(levels: int) -> Value:
    """Return a document with so many levels, of lists and objects in turn."""
    value: Value = []
    for level in range(levels - 1):
        value = {"a": value} if level % 2 else [value]
    return value


def circular() -> Value:
    """Return a document that contains itself, twice."""
    value: list[Any] = []
    value += [{"a": value}, value]
    return value


@given(values)
def test_value_comes_back_as_what_it_was(value: Value) -> None:
    octets = msgspec.json.encode(to_json(value))
    again = from_json(json.loads(octets))
    assert again == value
    assert type(again) is type(value)


@given(rows)
def test_row_comes_back_as_what_it_was(row: dict[str, Value]) -> None:
    assert row_from_json(msgspec.json.decode(msgspec.json.encode(row_to_json(row)))) == row


@given(rows)
def test_row_is_written_as_its_values_are(row: dict[str, Value]) -> None:
    encode = msgspec.json.encode
    assert encode(row_to_json(row)) == encode({name: to_json(row[name]) for name in row})


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, None),
        (True, True),
        (2**63 - 1, 2**63 - 1),
        (2**63, {"$int": "9223372036854775808"}),
        (-(2**63) - 1, {"$int": "-9223372036854775809"}),
        (0.5, 0.5),
        (math.inf, {"$float": "inf"}),
        ("text", "text"),
        (Colour.RED, "red"),
        (Shade.DARK, "dark"),
        (Markup("a"), "a"),
        (Rank.FIRST, 1),
        (Share(0.5), 0.5),
        (Price("1.50"), {"$decimal": "1.50"}),
        (Decimal("10.50"), {"$decimal": "10.50"}),
        (date(2026, 11, 21), {"$date": "2026-11-21"}),
        (time(12, 0, 0, 250_000), {"$time": "12:00:00.250000"}),
        (datetime(2026, 11, 21, 12), {"$datetime": "2026-11-21T12:00:00"}),
        (datetime(2026, 11, 21, 12, tzinfo=UTC), {"$datetime": "2026-11-21T12:00:00+00:00"}),
        (timedelta(seconds=-42), {"$interval": -42_000_000}),
        (b"\x00\x01\xff", {"$bytes": "AAH/"}),
        (bytearray(b"\x00"), {"$bytes": "AA=="}),
        (memoryview(b"\x00"), {"$bytes": "AA=="}),
        (memoryview(b"\x00x\x01x\xffx")[::2], {"$bytes": "AAH/"}),
        (UUID(int=1), {"$uuid": "00000000-0000-0000-0000-000000000001"}),
        ({"a": [1, None]}, {"$json": {"a": [1, None]}}),
        ([1, {"$int": "no type here"}], {"$json": [1, {"$int": "no type here"}]}),
        ((1, 2), {"$json": [1, 2]}),
        ([Shade.DARK, Markup("a"), Rank.FIRST], {"$json": ["dark", "a", 1]}),
        ({Markup("b"): {Shade.DARK: Share(0.5)}}, {"$json": {"b": {"dark": 0.5}}}),
        (Json("null"), {"$json": None}),
        (Json("true"), {"$json": True}),
        (Json('"5"'), {"$json": "5"}),
        (Json("1.5"), {"$json": 1.5}),
        (Json("1.50"), {"$jsontext": "1.50"}),
        (document("[0.10000000000000000001]"), {"$jsontext": "[0.10000000000000000001]"}),
        (document('{"price": 7.50}'), {"$jsontext": '{"price": 7.50}'}),
        (document('{"price": 7.5}'), {"$json": {"price": 7.5}}),
        (document("[1e3]"), {"$jsontext": "[1e3]"}),
        (document('{"a":1,"a":2}'), {"$jsontext": '{"a":1,"a":2}'}),
        (document(' {"a": [null]} '), {"$json": {"a": [None]}}),
        (interval(14, -3, -500_000), {"$interval": "P1Y2M-3DT-0.5S"}),
        (interval(0, 1, 0), {"$interval": "P1D"}),
        (NoDate("0000-00-00"), {"$date": "0000-00-00"}),
        (NoDate("2026-02-31 00:00:00.5"), {"$datetime": "2026-02-31 00:00:00.5"}),
        (interval(0, 0, 86_400_000_000), {"$interval": 86_400_000_000}),
        ({"b", "a"}, {"$set": ["a", "b"]}),
        ({Shade.DARK, Markup("a")}, {"$set": ["a", "dark"]}),
    ],
)
def test_form_of_each_type(value: Value, written: object) -> None:
    assert to_json(value) == written
    assert msgspec.json.encode(to_json(value)) == msgspec.json.encode(written)


def test_not_a_number() -> None:
    assert to_json(math.nan) == {"$float": "nan"}
    assert math.isnan(from_json({"$float": "nan"}))


def test_decimal_keeps_its_digits() -> None:
    assert str(from_json(to_json(Decimal("1.000")))) == "1.000"
    assert str(from_json(to_json(Decimal("1E+3")))) == "1E+3"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (object(), "cannot be carried as JSON that holds object"),
        (1j, "holds complex"),
        ({"a": b""}, "a JSON document cannot hold bytes"),
        ({1: 2}, "a name that is not text"),
        ([math.nan], "a JSON document cannot hold float"),
        (["\ud800"], "half of a surrogate pair"),
        ({"\udc00": 1}, "half of a surrogate pair"),
        pytest.param(10**5000, "more digits than Python writes", id="long"),
        (nested(301), "more than 300 levels, or contains itself"),
        (nested(100_000), "more than 300 levels, or contains itself"),
        (circular(), "more than 300 levels, or contains itself"),
    ],
)
def test_value_without_a_form(value: Value, told: str) -> None:
    with pytest.raises(InvalidValueError, match=told):
        to_json(value)
    with pytest.raises(InvalidValueError, match=f"column c: .*{told}"):
        row_to_json({"c": value})
    assert not is_carried(value)


def test_a_deep_document_is_carried() -> None:
    value = nested(300)
    assert from_json(msgspec.json.decode(msgspec.json.encode(to_json(value)))) == value


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ([1], "a list stands for no value"),
        ({}, "an object with 0 members"),
        ({"$int": "1", "$date": "x"}, "an object with 2 members"),
        ({"$nosuch": 1}, "'\\$nosuch' names no type"),
        ({"$int": 1}, "\\$int does not hold 1"),
        ({"$int": "one"}, "\\$int does not hold 'one'"),
        ({"$float": "0.5"}, "\\$float does not hold '0.5'"),
        ({"$decimal": "1,5"}, "\\$decimal does not hold '1,5'"),
        ({"$date": "21.11.2026"}, "\\$date does not hold"),
        ({"$interval": True}, "\\$interval does not hold True"),
        ({"$interval": 10**30}, "\\$interval does not hold"),
        ({"$bytes": "A"}, "\\$bytes does not hold 'A'"),
        ({"$bytes": "!!!!"}, "\\$bytes does not hold"),
        ({"$uuid": "1"}, "\\$uuid does not hold '1'"),
        ({"$jsontext": "text"}, "\\$jsontext does not hold 'text'"),
        ({"$interval": "1 month"}, "\\$interval does not hold '1 month'"),
        ({"$date": "2026-02-31 00:00:00"}, "\\$date does not hold"),
        ({"$datetime": "2026-13-00 00:00:00"}, "\\$datetime does not hold"),
        ({"$interval": "P"}, "\\$interval does not hold 'P'"),
        ({"$set": [[]]}, "\\$set does not hold"),
    ],
)
def test_json_that_is_no_value(written: Any, told: str) -> None:
    with pytest.raises(InvalidValueError, match=told):
        from_json(written)


def test_problem_names_the_column() -> None:
    with pytest.raises(InvalidValueError, match="column colour: a column cannot be carried"):
        row_to_json({"colour": object()})
    with pytest.raises(InvalidValueError, match="column colour: a list"):
        row_from_json({"colour": []})


def test_missing_is_not_null() -> None:
    assert row_from_json(row_to_json({"a": None})) == {"a": None}
    assert row_from_json(row_to_json({})) == {}


@given(documents)
def test_document_is_told_apart_from_text_and_null(value: Value) -> None:
    written = to_json(value)
    assert isinstance(written, dict)
    assert written.keys() <= {"$json", "$jsontext"}
    assert from_json(json.loads(msgspec.json.encode(written))) == value


@pytest.mark.parametrize("text", ["", "nul", "NaN", "[1", "01"])
def test_text_that_is_no_document(text: str) -> None:
    with pytest.raises(ValueError):
        document(text)


@given(intervals)
def test_interval_is_what_its_text_says(value: timedelta | Interval) -> None:
    if isinstance(value, Interval):
        assert Interval.parse(str(value)) == value


def test_what_older_versions_have_written_is_read() -> None:
    assert from_json({"$interval": 86_400_000_000}) == timedelta(days=1)
    assert from_json({"$json": {"a": 1}}) == {"a": 1}
    assert from_json({"$json": [1]}) == [1]
    # Documents other than objects and lists were text, as were months.
    assert from_json("null") == "null"
    assert from_json("P1M") == "P1M"
