"""Fast conversion of JSON values to column values.

Each function returns the result of :func:`~stompkit.replication.model.values.from_json` and the
column's adapter, or text that the database reads as the same value. It returns None if it cannot
guarantee that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from stompkit.replication.sql import TargetColumn

__all__ = ["quick"]

#: Function that converts the texts in tagged values to column values. It returns the same array for
#: unchanged texts, and ``None`` for the slow path. It may raise Arrow errors.
_Convert = Callable[[pa.Array], Sequence[object] | pa.Array | None]

_NUMBER: Final = "^-?(?:0|[1-9][0-9]{0,99})"
_FRACTION: Final = r"(?:\.[0-9]{1,%d})?$"
_MOST_DIGITS: Final = 99
_UUID: Final = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_INTS: Final = frozenset({int, type(None)})
_FLOATS: Final = frozenset({float, type(None)})
_TEXTS: Final = frozenset({str, type(None)})
_INT64: Final = range(-(2**63), 2**63)
_DICTS: Final = frozenset({dict, type(None)})


def quick(column: TargetColumn, values: Sequence[Any], backend: str) -> Sequence[object] | None:
    """Return the driver's values of a column; ``None`` for the slow path."""
    kinds = set(map(type, values))
    if kinds <= column.plain:
        # JSON contains whole numbers of any length, and Arrow refuses a whole batch for one.
        return None if backend == "arrow" and int in kinds and not _all_int64(values) else values
    if kinds <= _DICTS:
        return _of_one_type(column, values, backend)
    is_told = [value for value in values if value is not None]
    if kinds <= _TEXTS and _is_any_text(column) and "\0" not in "".join(is_told):
        return values
    if backend == "sqlite":
        if kinds <= _INTS and column.family == "int":
            return values if _all_int64(values) else None
        if kinds <= _FLOATS and column.family == "float":
            # JSON contains only finite numbers.
            return values
    return None


def _all_int64(values: Sequence[Any]) -> bool:
    """Return True if all whole numbers of a column, of which there are some, have 64 bits."""
    told = [value for value in values if value is not None]
    return min(told) in _INT64 and max(told) in _INT64


def _is_any_text(column: TargetColumn) -> bool:
    """Return True if a column stores text of any length unchanged."""
    return column.type_.__visit_name__ == "TEXT" and getattr(column.type_, "length", None) is None


def _of_one_type(
    column: TargetColumn, values: Sequence[Any], backend: str
) -> Sequence[object] | None:
    """Return the converted values of objects with one type tag."""
    told = [value for value in values if value is not None]
    name = next(iter(told[0]), "")
    convert = _converter(column, name, backend)
    if convert is None or set(map(len, told)) != {1}:
        return None
    try:
        texts = [None if value is None else value[name] for value in values]
        array = pa.array(texts, pa.string())
        made = convert(array)
    except (KeyError, TypeError, ValueError, pa.ArrowException):
        # The slow path reports the error.
        return None
    if made is array:
        return texts
    found: Sequence[object] | None = made.to_pylist() if isinstance(made, pa.Array) else made
    return found


def _converter(column: TargetColumn, name: str, backend: str) -> _Convert | None:
    """Return the conversion of a type's values for a column."""
    if backend not in ("sqlite", "postgresql"):
        return None
    found = _CONVERTERS.get((backend, column.family, name))
    if found is not None:
        return found
    if (column.family, name) == ("decimal", "$decimal"):
        scale = getattr(column.type_, "scale", None)
        return _sqlite_numbers if backend == "sqlite" else _numbers(scale)
    if (backend, column.family, name) == ("postgresql", "datetime", "$datetime"):
        if getattr(column.type_, "precision", None) is None:
            has_zone = bool(getattr(column.type_, "timezone", False))
            return _with_zone if has_zone else _without_zone
    return None


def _sqlite_numbers(texts: pa.Array) -> Sequence[object] | None:
    """Return numbers that floating point represents exactly."""
    if _numbers(None)(texts) is None:
        return None
    made: list[object] = []
    for text in texts.to_pylist():
        number = None
        if text is not None:
            number = float(text)
            said = repr(number)
            if said != text:
                # Trailing zeros are not significant.
                short = text.rstrip("0").rstrip(".") if "." in text else text
                if said not in (short, f"{short}.0"):
                    return None
        made.append(number)
    return made


def _numbers(scale: int | None) -> _Convert:
    """Return a conversion that accepts numbers as text, with at most *scale* decimal places."""
    pattern = f"{_NUMBER}{_FRACTION % scale}" if scale else f"{_NUMBER}$"
    if scale is None or scale > _MOST_DIGITS:
        pattern = f"{_NUMBER}{_FRACTION % _MOST_DIGITS}"
    return lambda texts: texts if _all(pc.match_substring_regex(texts, pattern)) else None


def _sqlite_times(texts: pa.Array) -> pa.Array | None:
    """Return times without zone, in SQLite's format."""
    times = pc.cast(texts, pa.timestamp("us"))
    return pc.cast(times, pa.string()) if _have_years(texts) else None


def _without_zone(texts: pa.Array) -> pa.Array | None:
    """Return times without zone as text; PostgreSQL rounds more than six digits of a second."""
    pc.cast(texts, pa.timestamp("us"))
    return texts if _have_years(texts) else None


def _with_zone(texts: pa.Array) -> pa.Array | None:
    """Return times with a zone of hours and minutes, as text."""
    pc.cast(texts, pa.timestamp("us", "UTC"))
    return texts if _have_years(texts) else None


def _dates(texts: pa.Array) -> pa.Array | None:
    pc.cast(texts, pa.date32())
    return texts if _have_years(texts) else None


def _uuids(texts: pa.Array) -> pa.Array | None:
    return texts if _all(pc.match_substring_regex(texts, _UUID)) else None


def _have_years(texts: pa.Array) -> bool:
    """Return True if all years are from 1 to 9999, written with four digits."""
    return _all(pc.match_substring_regex(texts, "^[0-9]{4}-")) and not _any(
        pc.starts_with(texts, "0000")
    )


def _all(found: pa.Array) -> bool:
    return bool(pc.all(found, min_count=0).as_py())


def _any(found: pa.Array) -> bool:
    return bool(pc.any(found, min_count=0).as_py())


_CONVERTERS: Final[dict[tuple[str, str, str], _Convert]] = {
    ("sqlite", "text", "$decimal"): _numbers(None),
    ("sqlite", "datetime", "$datetime"): _sqlite_times,
    ("sqlite", "date", "$date"): _dates,
    ("postgresql", "date", "$date"): _dates,
    ("postgresql", "uuid", "$uuid"): _uuids,
}
