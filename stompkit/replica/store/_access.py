"""Common base of the readers of a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Connection, Select

from stompkit.replica.store._statements import ByKeys, Statements
from stompkit.replica.store._tables import Tables

__all__ = ["CHUNK", "Access", "chunks", "from_json", "storable", "to_json"]

_T = TypeVar("_T")

#: Maximum number of parameters in a statement; older SQLite versions allow 999.
CHUNK: Final = 500
_JSON: Final = msgspec.json.Encoder(order="deterministic")
_VALUES: Final = msgspec.json.Decoder()


class Access:
    """A connection in a transaction, with query helpers."""

    def __init__(
        self, connection: Connection, statements: Statements, *, reads_latest: bool = False
    ) -> None:
        """Use a connection; ``reads_latest`` makes MySQL read beyond its snapshot."""
        self.connection: Final = connection
        self._statements: Final = statements
        self._tables: Final[Tables] = statements.tables
        self._reads_latest = reads_latest

    def _all(self, statement: Select[Any], **parameters: object) -> Sequence[Any]:
        """Return the rows of a query."""
        if self._reads_latest:
            statement = statement.with_for_update(read=True)
        return self.connection.execute(statement, parameters).all()

    def _all_of(self, query: ByKeys, keys: Iterable[object]) -> Iterator[Any]:
        """Yield the rows of a query by keys, in no order."""
        for some in chunks(list(keys)):
            yield from query.run(self.connection, some, reads_latest=self._reads_latest)


def chunks(items: list[_T], size: int = CHUNK) -> Iterator[list[_T]]:
    """Yield slices of the items that fit into a statement."""
    for first in range(0, len(items), size):
        yield items[first : first + size]


def to_json(content: object) -> bytes:
    """Encode a value as JSON for the store."""
    return _JSON.encode(content)


def from_json(octets: bytes) -> Any:
    """Decode a value of :func:`to_json`."""
    return _VALUES.decode(octets)


def storable(text: str) -> str:
    """Return a text in a form that every database accepts."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text
