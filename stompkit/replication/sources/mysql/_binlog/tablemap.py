"""Table descriptions, which the log has before the rows of a table.

The layout of the event is documented by MySQL and MariaDB as ``Table_map_event``. It has an
identifier, names, one byte of type for each column, and the metadata of the types. The nullable
columns follow, and then optional fields, all of which are present with
``binlog_row_metadata=FULL``. This module parses it instead of the library, which decodes the
labels of ENUM as UTF-8 and returns a key in the order of columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pymysqlreplication.constants import FIELD_TYPE

__all__ = [
    "BINARY_COLLATION",
    "COMPRESSED",
    "MappedColumn",
    "TableMap",
    "is_hidden",
    "parse_table_map",
]

#: Collation of bytes.
BINARY_COLLATION: Final = 63
#: MariaDB's VARCHAR and BLOB with the attribute COMPRESSED.
COMPRESSED: Final = (140, 141)
_VECTOR: Final = bytes((242,))

_NUMBERS: Final = frozenset(
    {
        FIELD_TYPE.TINY,
        FIELD_TYPE.SHORT,
        FIELD_TYPE.INT24,
        FIELD_TYPE.LONG,
        FIELD_TYPE.LONGLONG,
        FIELD_TYPE.NEWDECIMAL,
        FIELD_TYPE.FLOAT,
        FIELD_TYPE.DOUBLE,
        FIELD_TYPE.YEAR,
    }
)
_TEXTS: Final = frozenset(
    {FIELD_TYPE.STRING, FIELD_TYPE.VAR_STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.BLOB}
)
_CHOICES: Final = frozenset({FIELD_TYPE.ENUM, FIELD_TYPE.SET})
#: Types with one byte of length, precision or scale.
_ONE_OCTET: Final = frozenset(
    {
        FIELD_TYPE.FLOAT,
        FIELD_TYPE.DOUBLE,
        FIELD_TYPE.BLOB,
        FIELD_TYPE.GEOMETRY,
        FIELD_TYPE.JSON,
        FIELD_TYPE.TIME2,
        FIELD_TYPE.DATETIME2,
        FIELD_TYPE.TIMESTAMP2,
    }
)

_HIDDEN: Final = re.compile(r"DB_ROW_HASH_\d+")
_SEQUENCE: Final = (
    "next_not_cached_value",
    "minimum_value",
    "maximum_value",
    "start_value",
    "increment",
    "cache_size",
    "cycle_option",
    "cycle_count",
)

# Optional fields.
_SIGNEDNESS: Final = 1
_DEFAULT_CHARSET: Final = 2
_COLUMN_CHARSET: Final = 3
_NAMES: Final = 4
_SET_LABELS: Final = 5
_ENUM_LABELS: Final = 6
_KEY: Final = 8
_PREFIX_KEY: Final = 9
_CHOICE_DEFAULT_CHARSET: Final = 10
_CHOICE_CHARSET: Final = 11


@dataclass(slots=True)
class MappedColumn:
    """A column, as the log has it."""

    type: int
    #: Size metadata: bytes of a length, fractional digits of a second, maximum length, and so on.
    size: int = 0
    precision: int = 0
    scale: int = 0
    is_nullable: bool = True
    name: str = ""
    is_unsigned: bool = False
    collation: int = BINARY_COLLATION
    labels: tuple[bytes, ...] = ()


@dataclass(slots=True)
class TableMap:
    """A table, as the log has it."""

    schema: str
    table: str
    columns: list[MappedColumn]
    #: Indexes of the key's columns, in the key's order.
    key: tuple[int, ...] = field(default=())

    @property
    def is_sequence(self) -> bool:
        """True if it is a sequence of MariaDB, which the log has as a table with one row."""
        return not self.key and tuple(column.name for column in self.columns) == _SEQUENCE

    @property
    def has_names(self) -> bool:
        """True if the log was written with ``binlog_row_metadata=FULL``."""
        return all(column.name for column in self.columns)


def is_hidden(column: MappedColumn, specials: Mapping[str, str]) -> bool:
    """Return True if a column is one of the server's hidden columns.

    MariaDB has a hidden column with the hash of a long unique text. ``specials`` names the
    application's own columns with such names.
    """
    return (
        column.type == FIELD_TYPE.LONGLONG
        and _HIDDEN.fullmatch(column.name) is not None
        and column.name not in specials
    )


class _Octets:
    """A reader of successive bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    @property
    def is_more(self) -> bool:
        return self.at < len(self._data)

    def take(self, length: int) -> bytes:
        taken = self._data[self.at : self.at + length]
        if len(taken) < length:
            raise ValueError("the description of a table ends too early")
        self.at += length
        return taken

    def octet(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        """Read a number of one to nine bytes; the first byte gives the length."""
        first = self.octet()
        if first < 251:
            return first
        return int.from_bytes(self.take({252: 2, 253: 3, 254: 8}[first]), "little")

    def numbers(self) -> list[int]:
        found = []
        while self.is_more:
            found.append(self.number())
        return found


def parse_table_map(body: bytes, *, is_mariadb: bool) -> TableMap:
    """Parse the body of an event, without header and checksum; raises ``ValueError``."""
    octets = _Octets(body)
    octets.take(8)
    schema = octets.take(octets.octet()).decode()
    octets.take(1)
    table = octets.take(octets.octet()).decode()
    octets.take(1)
    # A VECTOR has the same layout as a LONGBLOB, and counts among the columns with a character set.
    types = octets.take(octets.number()).replace(_VECTOR, bytes((FIELD_TYPE.BLOB,)))
    details = _Octets(octets.take(octets.number()))
    columns = [_column(each, details) for each in types]
    nullable = int.from_bytes(octets.take((len(types) + 7) // 8), "little")
    for index, column in enumerate(columns):
        column.is_nullable = bool(nullable >> index & 1)
    mapped = TableMap(schema, table, columns)
    while octets.is_more:
        kind = octets.octet()
        _read_optional(mapped, kind, octets.take(octets.number()), is_mariadb=is_mariadb)
    return mapped


def _column(kind: int, details: _Octets) -> MappedColumn:
    if kind in _ONE_OCTET:
        return MappedColumn(kind, size=details.octet())
    if kind == FIELD_TYPE.VARCHAR:
        return MappedColumn(kind, size=int.from_bytes(details.take(2), "little"))
    if kind == FIELD_TYPE.NEWDECIMAL:
        return MappedColumn(kind, precision=details.octet(), scale=details.octet())
    if kind == FIELD_TYPE.BIT:
        bits = details.octet()
        return MappedColumn(kind, size=details.octet() * 8 + bits)
    if kind in (FIELD_TYPE.STRING, FIELD_TYPE.VAR_STRING):
        real, low = details.octet(), details.octet()
        if real in _CHOICES:
            return MappedColumn(real, size=low)
        # Two bits of a length beyond 255 are stored, inverted, in the type byte.
        return MappedColumn(FIELD_TYPE.STRING, size=low | ((real & 0x30) ^ 0x30) << 4)
    if kind in COMPRESSED:
        raise ValueError("a column has the attribute COMPRESSED, which cannot be read")
    return MappedColumn(kind)


def _read_optional(mapped: TableMap, kind: int, content: bytes, *, is_mariadb: bool) -> None:
    octets = _Octets(content)
    columns = mapped.columns
    # MariaDB counts geometries among the texts.
    texts = _TEXTS | {FIELD_TYPE.GEOMETRY} if is_mariadb else _TEXTS
    if kind == _SIGNEDNESS:
        for index, column in enumerate(_of(columns, _NUMBERS)):
            column.is_unsigned = bool(content[index // 8] & 0x80 >> index % 8)
    elif kind in (_DEFAULT_CHARSET, _CHOICE_DEFAULT_CHARSET):
        _, *rest = numbers = octets.numbers()
        others = dict(zip(rest[::2], rest[1::2], strict=True))
        for index, column in enumerate(
            _of(columns, texts if kind == _DEFAULT_CHARSET else _CHOICES)
        ):
            column.collation = others.get(index, numbers[0])
    elif kind in (_COLUMN_CHARSET, _CHOICE_CHARSET):
        wanted = _of(columns, texts if kind == _COLUMN_CHARSET else _CHOICES)
        for column, collation in zip(wanted, octets.numbers(), strict=True):
            column.collation = collation
    elif kind == _NAMES:
        for column in columns:
            column.name = octets.take(octets.number()).decode()
    elif kind in (_SET_LABELS, _ENUM_LABELS):
        wanted_type = FIELD_TYPE.SET if kind == _SET_LABELS else FIELD_TYPE.ENUM
        for column in _of(columns, {wanted_type}):
            count = octets.number()
            column.labels = tuple(octets.take(octets.number()) for _ in range(count))
    elif kind == _KEY:
        mapped.key = tuple(octets.numbers())
    elif kind == _PREFIX_KEY:
        # Each index comes with a prefix length of the column, which is ignored.
        mapped.key = tuple(octets.numbers()[::2])


def _of(columns: list[MappedColumn], types: frozenset[int] | set[int]) -> Iterator[MappedColumn]:
    return (column for column in columns if column.type in types)
