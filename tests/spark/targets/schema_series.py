"""Random series of statements that change a table and its rows, in the SQL of a source."""

from __future__ import annotations

from random import Random
from typing import Final

__all__ = ["Series"]

_NAMES: Final = ("a", "b", "c", "d")
_TYPES: Final = ("INT", "VARCHAR(20)", "BIGINT", "DECIMAL(10,2)", "DECIMAL(14,3)")
_TEXT: Final = "VARCHAR(20)"


class Series:
    """A table ``t``, and random statements that fit it.

    A server may refuse a statement, such as one that has a NULL where none may be. Call
    :meth:`done` after those that it has accepted.
    """

    def __init__(self, random: Random, *, is_mysql: bool) -> None:
        """Start with two columns beside the key."""
        self._random = random
        self._is_mysql = is_mysql
        self.key = "id"
        #: Types by name.
        self.columns = {"a": "INT", "b": _TEXT}
        self._next = (self.key, self.columns)
        self._ids = 0
        self.begin: Final = (
            f"CREATE TABLE t (id INT PRIMARY KEY, a INT, b {_TEXT})",
            *(self.insert() for _ in range(3)),
        )

    def done(self) -> None:
        """Note that the last statements were accepted."""
        self.key, self.columns = self._next

    def statements(self) -> list[str]:
        """Return one or several statements, to run in one transaction if there are several."""
        self._next = (self.key, self.columns)
        kind = self._random.choice(["alter", "alter", "insert", "update", "delete", "rekey"])
        if kind == "alter":
            return self._alter()
        number = self._random.randint(1, self._ids)
        where = f"WHERE {self.key} = {number}"
        if kind == "delete":
            return [f"DELETE FROM t {where}"]
        if kind == "rekey":
            self._ids += 1
            return [f"UPDATE t SET {self.key} = {self._ids} {where}"]
        if kind == "insert" or not self.columns:
            return [self.insert()]
        name = self._random.choice(list(self.columns))
        return [f"UPDATE t SET {name} = {self._value(name)} {where}"]

    def insert(self, value: str = "") -> str:
        """Return a statement for a new row, with a value for all columns or random ones."""
        self._ids += 1
        names = ", ".join([self.key, *self.columns])
        made = [value or self._value(name) for name in self.columns]
        values = ", ".join([str(self._ids), *made])
        return f"INSERT INTO t ({names}) VALUES ({values})"

    def _value(self, name: str) -> str:
        texts = ["'word'", "'other'"] if self.columns[name] == _TEXT else []
        return self._random.choice(["NULL", "7", "12", "'34'", *texts])

    def _alter(self) -> list[str]:
        """Return changes of columns, each of another column; some names are used again."""
        clauses: list[str] = []
        left = list(self.columns)
        self._random.shuffle(left)
        kept = dict(self.columns)
        key = self.key
        for _ in range(self._random.randint(1, 3)):
            free = [name for name in _NAMES if name not in kept]
            new = self._random.choice(free) if free else ""
            kind = self._random.choice(
                ["add", "drop", "rename", "type", "change", "default", "key"]
            )
            if kind == "add" and new:
                kept[new] = self._random.choice(_TYPES)
                clauses.append(f"ADD {new} {kept[new]}{self._more()}")
            elif kind == "key" and key == self.key and self._random.random() < 0.3:
                key = "ident" if key == "id" else "id"
                clauses.append(f"RENAME COLUMN {self.key} TO {key}")
            elif kind in ("drop", "rename", "type", "change", "default") and left:
                clauses.append(self._change(kind, left.pop(), new, kept))
        self._next = (key, kept)
        if not clauses:
            return [self.insert()]
        if self._is_mysql:
            return [f"ALTER TABLE t {', '.join(clauses)}"]
        # Names that are used again have to be free, and RENAME stands alone.
        clauses.sort(key=lambda clause: not clause.startswith("DROP"))
        return [f"ALTER TABLE t {clause}" for clause in clauses]

    def _change(self, kind: str, old: str, new: str, kept: dict[str, str]) -> str:
        """Return a clause about an existing column."""
        if kind == "drop":
            del kept[old]
            return f"DROP COLUMN {old}"
        if kind == "rename" and new:
            kept[new] = kept.pop(old)
            return f"RENAME COLUMN {old} TO {new}"
        if kind == "default":
            return f"ALTER {old} SET DEFAULT 8"
        type_ = self._random.choice(_TYPES)
        if kind == "change" and new and self._is_mysql:
            del kept[old]
            kept[new] = type_
            return f"CHANGE {old} {new} {type_}"
        if self._is_mysql:
            kept[old] = type_
            more = self._random.choice(["", "", " NOT NULL", " DEFAULT 3"])
            return f"MODIFY {old} {type_}{more}"
        if self._random.random() < 0.2:
            return f"ALTER {old} SET NOT NULL"
        kept[old] = type_
        through = "" if type_ == _TEXT else "::numeric"
        return f"ALTER {old} TYPE {type_} USING {old}::text{through}::{type_}"

    def _more(self) -> str:
        return self._random.choice(["", "", " DEFAULT 5", " NOT NULL DEFAULT 6"])
