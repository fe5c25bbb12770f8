"""A published table, and the changes that its messages stand for."""

from __future__ import annotations

import hashlib
from typing import Any, Final, Literal

import msgspec

from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Value
from stompkit.replication.sources.postgres._catalogue import CatalogueTable
from stompkit.replication.sources.postgres._records import (
    UNCHANGED,
    Delete,
    Insert,
    PgoutputError,
    Relation,
    Row,
    Update,
)
from stompkit.replication.sources.postgres._shapes import Shape, differences_of
from stompkit.replication.sources.postgres._values import Convert, converter, described

__all__ = ["PublishedTable"]


class PublishedTable:
    """A table as the stream describes it, with readers for its rows."""

    def __init__(self, relation: Relation, found: CatalogueTable | None) -> None:
        """Add details from the catalogue that the relation lacks, if the table still exists.

        These are the order of the key's columns, the key if the whole row is the identity, the base
        types of domains, and the nullable columns.
        """
        self.schema = relation.schema
        self.name = relation.name
        names = [column.name for column in relation.columns]
        flagged = [column.name for column in relation.columns if column.is_key]
        key = [] if found is None or not {*found.key} <= {*names} else list(found.key)
        # The catalogue is current, the relation historical: if they differ, the relation is right.
        if relation.identity not in ("f", "n") and {*key} != {*flagged}:
            key = flagged
        self.key: Final = key
        domains = {} if found is None else found.domains
        nullable = set(names) if found is None else found.nullable
        numbers = {} if found is None or found.oid != relation.oid else found.numbers
        self.shape: Final = Shape(
            relation.oid,
            tuple(
                (each.name, each.type_oid, each.modifier, numbers.get(each.name, 0))
                for each in relation.columns
            ),
            generated=()
            if found is None or found.oid != relation.oid
            else tuple(found.generated.values()),
        )
        #: See :func:`why_copied`.
        self.plain: Final = frozenset[str]() if found is None else found.plain
        self._readers: Final[list[tuple[str, Convert]]] = []
        self.columns: Final[list[dict[str, Any]]] = []
        for column in relation.columns:
            type_oid, modifier = domains.get(column.type_oid, (column.type_oid, column.modifier))
            self._readers.append((column.name, converter(type_oid)))
            is_key = column.name in key
            self.columns.append(
                {
                    "name": column.name,
                    **described(type_oid, modifier),
                    "key": is_key,
                    "nullable": column.name in nullable and not is_key,
                }
            )
        # Without names of types, which are identified by numbers: older versions published none.
        columns = [
            {name: said for name, said in each.items() if name != "native"} for each in self.columns
        ]
        content = [columns, [[each.type_oid, each.modifier] for each in relation.columns]]
        #: The same for the same columns.
        self.digest: Final = hashlib.blake2b(
            msgspec.json.encode(content), digest_size=8
        ).hexdigest()

    @property
    def full_name(self) -> str:
        """Name with the schema."""
        return f"{self.schema}.{self.name}"

    def row(self, values: Row) -> dict[str, Value]:
        """Return a row's values by column, without values that were not sent."""
        if len(values) != len(self._readers):
            raise PgoutputError(
                f"a row of {self.full_name} has {len(values)} values for "
                f"{len(self._readers)} columns"
            )
        row: dict[str, Value] = {}
        name = ""
        try:
            for (name, convert), value in zip(self._readers, values, strict=True):
                if value is None:
                    row[name] = None
                elif value is not UNCHANGED:
                    row[name] = convert(value)
        except (ValueError, ArithmeticError):
            # The value may be confidential.
            raise PgoutputError(
                f"column {name} of {self.full_name} has a value that is none of its type"
            ) from None
        return row

    def change(self, record: Insert | Update | Delete) -> RowChange:
        """Return the change of a row."""
        if isinstance(record, Insert):
            return self._now("write", self.row(record.new))
        before = None if record.old is None else self._before(record.old, is_key=record.is_key)
        if isinstance(record, Delete):
            assert before is not None
            return RowChange(
                schema=self.schema,
                table=self.name,
                action="delete",
                key=self._key_of(before),
                before=before,
            )
        after = self.row(record.new)
        if before is not None:
            # Values that were not sent again are unchanged.
            after = {
                name: after[name] if name in after else before[name]
                for name, _ in self._readers
                if name in after or name in before
            }
        key = self._key_of(after)
        old_key = None if before is None else self._key_of(before)
        return RowChange(
            schema=self.schema,
            table=self.name,
            action="update",
            key=key,
            before=before,
            after=after,
            old_key=None if old_key == key else old_key,
        )

    def found(self, values: Row) -> RowChange:
        """Return the change for a row of a snapshot."""
        return self._now("read", self.row(values))

    def truncated(self) -> RowChange:
        """Return the change for a truncated table."""
        return RowChange(schema=self.schema, table=self.name, action="truncate", key={})

    def changed(self, before: Shape | None = None, untold: str = "") -> RowChange:
        """Return the schema change with the table's columns, and the renamed and retyped ones.

        ``untold`` names the properties of existing rows that have changed and are not published
        again.
        """
        more = {"untold": untold} if untold else {}
        return RowChange(
            schema=self.schema,
            table=self.name,
            action="schema",
            key={},
            after={"columns": self.columns, **differences_of(before, self.shape), **more},
        )

    def _now(self, action: Literal["write", "read"], row: dict[str, Value]) -> RowChange:
        return RowChange(
            schema=self.schema, table=self.name, action=action, key=self._key_of(row), after=row
        )

    def _key_of(self, row: dict[str, Value]) -> dict[str, Value]:
        """Return the row's key, in its order."""
        return {name: row[name] for name in self.key if name in row}

    def _before(self, values: Row, *, is_key: bool) -> dict[str, Value]:
        row = self.row(values)
        # Non-key columns are NULL here, which may not be their actual values.
        return self._key_of(row) if is_key else row
