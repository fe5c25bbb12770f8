"""Selection of replicated tables and columns, and masking of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import translate
from re import Pattern
from re import compile as compile_pattern
from typing import Any

import msgspec

from stompkit._common.spelling import did_you_mean
from stompkit.replication.model._masks import Drop, Hash, Mask, mask_named
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Value

__all__ = ["Mask", "Tables", "drops", "hashes"]


class Tables:
    """A filter of replicated tables and columns, with masks for values.

    Patterns are those of file names (``*``, ``?``, ``[abc]``) and are case-sensitive.
    """

    def __init__(
        self,
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        *,
        columns_exclude: Iterable[str] = (),
        masks: Mapping[str, str] | None = None,
        always_exclude: Iterable[str] = (),
    ) -> None:
        """Select ``include`` (all tables, if it is empty) except the excluded ones.

        :meth:`unmatched` does not warn of ``always_exclude``, which no user has chosen. All three
        hold patterns of ``schema.table``; one without a dot is for a table of any schema.
        ``columns_exclude`` and the names in ``masks`` are patterns of ``schema.table.column`` or of
        ``table.column``. Masks are

        * ``hash:SECRET``: HMAC-SHA-256 of the value with that secret, in hexadecimal; equal values
          stay equal;
        * ``null``;
        * ``constant:TEXT``;
        * ``truncate:N``: the first N characters of text, or octets of bytes. Columns of other types
          are refused, because their values would be shown;
        * ``drop``: the same as excluding the column.

        A key column cannot be excluded, and accepts only the mask ``hash``, because keys must stay
        unique. Raises ``ValueError`` for an invalid pattern or mask, and for a single string in
        place of several.
        """
        self._names = {
            "--tables": _listed("include", include),
            "--exclude": _listed("exclude", exclude),
        }
        self._include = _patterns(self._names["--tables"])
        always = _listed("always_exclude", always_exclude)
        self._exclude = _patterns([*self._names["--exclude"], *always])
        rules = [(pattern, "drop") for pattern in _listed("columns_exclude", columns_exclude)]
        self._rules = [
            (_column_pattern(pattern), pattern, mask_named(pattern, mask))
            for pattern, mask in [*rules, *(masks or {}).items()]
        ]
        self._wanted: dict[tuple[str, str], bool] = {}
        self._masks: dict[tuple[str, str, str], Mask | None] = {}

    def __repr__(self) -> str:
        """Show only the number of rules, because a mask has a secret."""
        return f"<Tables with {len(self._rules)} rules for columns>"

    @property
    def selects_all(self) -> bool:
        """True if all tables are replicated, with all columns as they are."""
        return not (self._include or self._exclude or self._rules)

    def wants(self, schema: str, table: str) -> bool:
        """Return True if the table is replicated."""
        name = (schema, table)
        wanted = self._wanted.get(name)
        if wanted is None:
            wanted = not self._include or _matches(self._include, schema, table)
            wanted = wanted and not _matches(self._exclude, schema, table)
            self._wanted[name] = wanted
        return wanted

    @property
    def has_column_rules(self) -> bool:
        """True if columns are excluded or masked."""
        return bool(self._rules)

    def unmatched(self, tables: Mapping[tuple[str, str], Iterable[str]]) -> list[str]:
        """Return a warning for each pattern that matches nothing, be it of tables or of columns.

        ``tables`` are the columns of the existing tables, by schema and table; the columns are used
        only with :attr:`has_column_rules`. A table or column may be created later, so this is not
        an error. However, a misspelt mask would publish what it was to hide.
        """
        found = [
            f"no table matches the pattern {pattern!r} of {option}{_meant(pattern, tables)}"
            for option, patterns in self._names.items()
            for pattern in patterns
            if not any(_matches(_patterns([pattern]), *name) for name in tables)
        ]
        names = [(*table, column) for table in tables for column in tables[table]]
        for compiled, pattern, mask in self._rules:
            if not any(compiled.match(_column_name(pattern, *name)) for name in names):
                option = "--exclude-columns" if isinstance(mask, Drop) else "--mask"
                known = {_column_name(pattern, *name) for name in names}
                found.append(
                    f"no column matches the pattern {pattern!r} of {option}, so that it hides"
                    f" nothing{did_you_mean(pattern, sorted(known))}"
                )
        return found

    def shape(self, change: RowChange) -> RowChange:
        """Return the change without excluded columns, and with masked values.

        Raises ``ValueError`` if a key would no longer identify the row, if a mask cannot hide a
        column or a value, and if a column is renamed to a name without a rule.
        """
        if not self._rules:
            return change
        if change.action == "schema":
            return self._shape_columns(change)
        changed = {
            "key": self._shape_key(change, change.key),
            "before": self._shape_row(change, change.before),
            "after": self._shape_row(change, change.after),
            "old_key": None if change.old_key is None else self._shape_key(change, change.old_key),
        }
        if all(getattr(change, name) is value for name, value in changed.items()):
            return change
        return msgspec.structs.replace(change, **changed)

    def mask_of(self, schema: str, table: str, column: str) -> Mask | None:
        """Return the mask of a column; ``None`` if its values are published as they are."""
        name = (schema, table, column)
        if name not in self._masks:
            found = (
                mask
                for pattern, text, mask in self._rules
                if pattern.match(_column_name(text, *name))
            )
            self._masks[name] = next(found, None)
        return self._masks[name]

    # Inside.

    def _rule(self, change: RowChange, column: str) -> Mask | None:
        return self.mask_of(change.schema, change.table, column)

    def _shape_row(
        self, change: RowChange, row: dict[str, Value] | None
    ) -> dict[str, Value] | None:
        if row is None:
            return None
        masks = {column: self._rule(change, column) for column in row}
        if not any(masks.values()):
            return row
        return {
            column: value if mask is None or value is None else _masked(change, column, mask, value)
            for column, value in row.items()
            if not isinstance(mask := masks[column], Drop)
        }

    def _shape_key(self, change: RowChange, key: dict[str, Value]) -> dict[str, Value]:
        for column in key:
            mask = self._rule(change, column)
            if mask is not None and not isinstance(mask, Hash):
                raise ValueError(
                    f"column {column} is in the key of {change.name}: it can be masked by hash "
                    "only, and cannot be left out"
                )
        shaped = self._shape_row(change, key)
        assert shaped is not None
        return shaped

    def _shape_columns(self, change: RowChange) -> RowChange:
        after = change.after or {}
        self._check_renamed(change, after.get("renamed"))
        columns = after.get("columns")
        if columns is None:
            return change
        kept = [
            each if mask is None else _described(change, mask, each)
            for each in columns
            if not isinstance(mask := self._rule(change, each["name"]), Drop)
        ]
        # The statement could reveal excluded columns.
        reported = {name: value for name, value in after.items() if name != "statement"}
        reported = after if len(kept) == len(columns) else reported
        return msgspec.structs.replace(change, after={**reported, "columns": kept})

    def _check_renamed(self, change: RowChange, renamed: Value) -> None:
        """Refuse to publish the values of an excluded or masked column under another name."""
        for old, new in renamed.items() if isinstance(renamed, dict) else ():
            rule = self._rule(change, old)
            if rule is not None and self._rule(change, str(new)) is None:
                option = "--exclude-columns" if isinstance(rule, Drop) else "--mask"
                raise ValueError(
                    f"column {old} of {change.name} is called {new} now, which {option} does not"
                    f" name: its values are not published. Add a rule for {new}, and keep that for"
                    f" {old}"
                )


def _listed(name: str, patterns: Iterable[str]) -> list[str]:
    if isinstance(patterns, str):
        raise ValueError(f"{name} is a list of patterns, not one text: [{patterns!r}]")
    listed = list(patterns)
    if not all(listed):
        raise ValueError(f"{name} has an empty pattern")
    return listed


def _patterns(patterns: Iterable[str]) -> list[tuple[Pattern[str], bool]]:
    """Return each pattern with True if it names a schema."""
    return [(_compiled(each), "." in each) for each in patterns]


def _compiled(pattern: str) -> Pattern[str]:
    return compile_pattern(translate(pattern))


def _column_pattern(pattern: str) -> Pattern[str]:
    if pattern.count(".") not in (1, 2):
        raise ValueError(f"{pattern!r} is not schema.table.column or table.column")
    return _compiled(pattern)


def _matches(patterns: list[tuple[Pattern[str], bool]], schema: str, table: str) -> bool:
    full = f"{schema}.{table}"
    return any(pattern.match(full if with_schema else table) for pattern, with_schema in patterns)


def _column_name(pattern: str, schema: str, table: str, column: str) -> str:
    """Return the name of a column as a pattern has it, with the schema or without."""
    return f"{schema}.{table}.{column}" if pattern.count(".") > 1 else f"{table}.{column}"


def _meant(pattern: str, names: Iterable[tuple[str, str]]) -> str:
    """Return the name of a table that is similar to the pattern, for a message."""
    known = {f"{schema}.{table}" if "." in pattern else table for schema, table in names}
    return did_you_mean(pattern, sorted(known))


def drops(mask: Mask) -> bool:
    """Return True if a mask leaves its columns out."""
    return isinstance(mask, Drop)


def hashes(mask: Mask) -> bool:
    """Return True if a mask makes equal texts of equal values only."""
    return isinstance(mask, Hash)


def _masked(change: RowChange, column: str, mask: Mask, value: Value) -> Value:
    try:
        return mask.value(value)
    except ValueError as error:
        raise ValueError(f"column {column} of {change.name}: {error}") from None


def _described(change: RowChange, mask: Mask, column: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return mask.column(column)
    except ValueError as error:
        raise ValueError(f"column {column['name']} of {change.name}: {error}") from None
