"""Random transactions on a database, and its final contents."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from redis import Redis
from sqlalchemy import Connection, Engine, text

from stompkit.replication.model.values import row_from_json
from stompkit.replication.sinks.cache import NAMESPACE

__all__ = ["Contents", "Workload", "cached", "contents"]

#: Types of databases for bytes and for a time without a zone.
_TYPES: Final = {"postgresql": ("BYTEA", "TIMESTAMP"), "sqlite": ("BLOB", "DATETIME")}
_OTHER_TYPES: Final = ("VARBINARY(200)", "DATETIME")
_BEGINNING: Final = datetime(2026, 1, 1)
_WORDS: Final = ("", "a", "NULL", "naïve", "日本", "quote ' and \\", "tab\there")


@dataclass(slots=True)
class _Rows:
    """The existing keys, as a transaction sees them."""

    orders: dict[tuple[int, int], None] = field(default_factory=dict)
    items: dict[int, None] = field(default_factory=dict)

    def copy(self) -> _Rows:
        return _Rows(dict(self.orders), dict(self.items))


class Workload:
    """Makes transactions of inserts, updates, key changes and deletes on two tables.

    Some are rolled back, some have savepoints of which some are rolled back. In the middle one of
    the tables gets another column.
    """

    def __init__(self, engine: Engine, seed: int) -> None:
        """Create the tables."""
        self._engine = engine
        self._chance = random.Random(seed)
        self._rows = _Rows()
        self._has_note = False
        self._next = 0
        #: Numbers of row changes that were committed, and of those that were rolled back.
        self.changes = self.taken_back = 0
        with engine.begin() as connection:
            for statement in self._definitions():
                connection.execute(text(statement))

    def _definitions(self) -> list[str]:
        octets, time = _TYPES.get(self._engine.dialect.name, _OTHER_TYPES)
        return [
            "CREATE TABLE orders (region INT NOT NULL, number INT NOT NULL, buyer VARCHAR(50), "
            f"price NUMERIC(12, 2), made {time}, PRIMARY KEY (number, region))",
            f"CREATE TABLE items (id BIGINT PRIMARY KEY, region INT, data {octets}, weight "
            "DOUBLE PRECISION, title VARCHAR(50))",
        ]

    def run(self, changes: int) -> None:
        """Run transactions until this many more changes are committed."""
        goal = self.changes + changes
        with self._engine.connect() as connection:
            while self.changes < goal:
                self._transaction(connection)

    def alter(self) -> None:
        """Add a column to a table."""
        with self._engine.begin() as connection:
            connection.execute(text("ALTER TABLE orders ADD COLUMN note VARCHAR(50)"))
        self._has_note = True

    def finish(self) -> None:
        """Insert the last row, which shows that all has arrived."""
        with self._engine.begin() as connection:
            connection.execute(text("INSERT INTO items (id, title) VALUES (-1, 'the end')"))

    # Transactions.

    def _transaction(self, connection: Connection) -> None:
        chance = self._chance
        before = self._rows
        self._rows = before.copy() if chance.random() < 0.1 else before
        is_taken_back = self._rows is not before
        with connection.begin() as transaction:
            changes = self._steps(connection, chance.choice((1, 1, 2, 5, 20, 60)))
            if chance.random() < 0.1:
                changes += self._savepoint(connection)
            if is_taken_back:
                transaction.rollback()
        if is_taken_back:
            self._rows = before
            self.taken_back += changes
        else:
            self.changes += changes

    def _savepoint(self, connection: Connection) -> int:
        is_taken_back = self._chance.random() < 0.5
        before = self._rows
        self._rows = before.copy()
        with connection.begin_nested() as savepoint:
            changes = self._steps(connection, self._chance.randint(1, 10))
            if is_taken_back:
                savepoint.rollback()
        if not is_taken_back:
            before.orders, before.items = self._rows.orders, self._rows.items
        self._rows = before
        self.taken_back += changes if is_taken_back else 0
        return 0 if is_taken_back else changes

    def _steps(self, connection: Connection, steps: int) -> int:
        kinds = (
            self._insert_orders,
            self._insert_items,
            self._update_order,
            self._update_items,
            self._move_order,
            self._move_item,
            self._delete_order,
            self._delete_items,
        )
        weights = (8, 8, 8, 4, 1, 1, 2, 1)
        return sum(step(connection) for step in self._chance.choices(kinds, weights, k=steps))

    def _insert_orders(self, connection: Connection) -> int:
        keys = [(self._chance.randint(1, 3), self._number()) for _ in range(self._few())]
        columns = ["region", "number", "buyer", "price", "made"]
        columns += ["note"] if self._has_note else []
        rows = [{"region": region, "number": number, **self._order()} for region, number in keys]
        values = ", ".join(f":{name}" for name in columns)
        connection.execute(
            text(f"INSERT INTO orders ({', '.join(columns)}) VALUES ({values})"), rows
        )
        self._rows.orders |= dict.fromkeys(keys)
        return len(rows)

    def _insert_items(self, connection: Connection) -> int:
        keys = [self._number() for _ in range(self._few())]
        rows = [{"id": key, "region": self._chance.randint(1, 3), **self._item()} for key in keys]
        connection.execute(
            text("INSERT INTO items VALUES (:id, :region, :data, :weight, :title)"), rows
        )
        self._rows.items |= dict.fromkeys(keys)
        return len(rows)

    def _update_order(self, connection: Connection) -> int:
        key = self._pick(self._rows.orders)
        if key is None:
            return 0
        values = self._order()
        sets = ", ".join(f"{name} = :{name}" for name in values)
        connection.execute(
            text(f"UPDATE orders SET {sets} WHERE region = :region AND number = :number"),
            {**values, "region": key[0], "number": key[1]},
        )
        return 1

    def _update_items(self, connection: Connection) -> int:
        key = self._pick(self._rows.items)
        if key is None:
            return 0
        done = connection.execute(
            text(
                "UPDATE items SET weight = COALESCE(weight, 0) + 1, title = :title "
                "WHERE id BETWEEN :id AND :id + 3"
            ),
            {"id": key, "title": self._word()},
        )
        return done.rowcount

    def _move_order(self, connection: Connection) -> int:
        key = self._pick(self._rows.orders)
        if key is None:
            return 0
        new = (self._chance.randint(1, 3), self._number())
        connection.execute(
            text(
                "UPDATE orders SET region = :region, number = :number "
                "WHERE region = :old_region AND number = :old_number"
            ),
            {"region": new[0], "number": new[1], "old_region": key[0], "old_number": key[1]},
        )
        del self._rows.orders[key]
        self._rows.orders[new] = None
        return 1

    def _move_item(self, connection: Connection) -> int:
        key = self._pick(self._rows.items)
        if key is None:
            return 0
        new = self._number()
        connection.execute(
            text("UPDATE items SET id = :new WHERE id = :id"), {"new": new, "id": key}
        )
        del self._rows.items[key]
        self._rows.items[new] = None
        return 1

    def _delete_order(self, connection: Connection) -> int:
        key = self._pick(self._rows.orders)
        if key is None:
            return 0
        connection.execute(
            text("DELETE FROM orders WHERE region = :region AND number = :number"),
            {"region": key[0], "number": key[1]},
        )
        del self._rows.orders[key]
        return 1

    def _delete_items(self, connection: Connection) -> int:
        keys = list(self._rows.items)[: self._few()]
        for key in keys:
            connection.execute(text("DELETE FROM items WHERE id = :id"), {"id": key})
            del self._rows.items[key]
        return len(keys)

    # Values.

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _few(self) -> int:
        return self._chance.choice((1, 1, 1, 2, 5))

    def _pick(self, keys: dict[Any, None]) -> Any:
        """Return one of the keys, mostly one of the newer ones."""
        if not keys:
            return None
        listed = list(keys) if len(keys) < 50 else self._sample(keys)
        return self._chance.choice(listed)

    def _sample(self, keys: dict[Any, None]) -> list[Any]:
        newest = reversed(keys)
        return [next(newest) for _ in range(50)]

    def _word(self) -> str:
        return self._chance.choice(_WORDS) + str(self._chance.randint(0, 10**6))

    def _order(self) -> dict[str, Any]:
        chance = self._chance
        made = _BEGINNING + timedelta(seconds=chance.randint(0, 10**7))
        order: dict[str, Any] = {
            "buyer": None if chance.random() < 0.1 else self._word(),
            "price": Decimal(chance.randint(-(10**9), 10**9)) / 100,
            "made": None if chance.random() < 0.1 else made,
        }
        if self._has_note:
            order["note"] = self._word() if chance.random() < 0.5 else None
        return order

    def _item(self) -> dict[str, Any]:
        chance = self._chance
        return {
            "data": None if chance.random() < 0.1 else chance.randbytes(chance.randint(0, 100)),
            "weight": chance.uniform(-1e9, 1e9),
            "title": self._word(),
        }


Contents = dict[str, list[tuple[str, ...]]]


def contents(engine: Engine) -> Contents:
    """Return all rows of both tables, by key, in a form independent of the database."""
    with engine.connect() as connection:
        return {
            table: sorted(
                _plain(table, row)
                for row in connection.execute(text(f"SELECT {', '.join(columns)} FROM {table}"))
            )
            for table, columns in _FORMS.items()
        }


def cached(client: Redis) -> Contents:
    """Return the cached rows in the same form."""
    found: Contents = {table: [] for table in _FORMS}
    keys = [key for key in client.scan_iter(f"{NAMESPACE}:*:*", count=1000)]
    for begin in range(0, len(keys), 1000):
        names = keys[begin : begin + 1000]
        for name, octets in zip(names, client.mget(names), strict=True):
            table = name.decode().removeprefix(f"{NAMESPACE}:").partition(":")[0]
            table = table.rpartition(".")[2]
            assert octets is not None
            row = row_from_json(json.loads(octets))
            found[table].append(_plain(table, [row.get(column) for column in _FORMS[table]]))
    return {table: sorted(rows) for table, rows in found.items()}


def _plain(table: str, row: Iterable[Any]) -> tuple[str, ...]:
    return tuple(form(value) for form, value in zip(_FORMS[table].values(), row, strict=True))


def _or_null(plain: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "NULL" if value is None else plain(value)


#: Conversions that make values comparable: SQLite has neither decimals nor times.
_FORMS: Final = {
    "orders": {
        "number": _or_null(lambda value: f"{value:09}"),
        "region": _or_null(str),
        "buyer": _or_null(repr),
        "price": _or_null(lambda value: f"{Decimal(str(value)):.2f}"),
        "made": _or_null(lambda value: str(value)[:19].replace("T", " ")),
        "note": _or_null(repr),
    },
    "items": {
        "id": _or_null(lambda value: f"{value:09}"),
        "region": _or_null(str),
        "data": _or_null(lambda value: bytes(value).hex()),
        "weight": _or_null(lambda value: repr(float(value))),
        "title": _or_null(repr),
    },
}
