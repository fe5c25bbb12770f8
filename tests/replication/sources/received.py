"""The received changes, and a comparison of their replay with the database."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session, sessionmaker

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.model.values import Value
from tests.replication.sources.models import Author, Base

__all__ = ["Received", "contents", "replay", "shown", "with_authors"]


class Received:
    """Collects the changesets that are sent while it is entered."""

    def __init__(self) -> None:
        """Start empty."""
        self.changesets: list[Changeset] = []

    def __enter__(self) -> Self:
        CHANGESET.connect(self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        CHANGESET.disconnect(self._receive)

    def _receive(self, changeset: Changeset) -> None:
        self.changesets.append(changeset)

    def take(self) -> list[str]:
        """Return the changes since the last call, one word for each change."""
        found = self.changes
        self.changesets.clear()
        return [shown(change) for change in found]

    @property
    def changes(self) -> list[RowChange]:
        """All changes."""
        return [change for changeset in self.changesets for change in changeset.changes]


def shown(change: RowChange) -> str:
    """Return a change in short form: ``write authors 1``."""
    key = ",".join(map(str, change.key.values()))
    return f"{change.action} {change.name} {key}"


def replay(
    changes: Iterable[RowChange], rows: dict[str, dict[tuple[Any, ...], dict[str, Value]]]
) -> None:
    """Apply changes to rows by table and key; fail for missing rows and for conflicts."""
    for change in changes:
        table = rows.setdefault(change.name, {})
        key = tuple(change.key.values())
        if change.action == "write":
            assert key not in table, change
            assert change.after is not None
            table[key] = dict(change.after)
        elif change.action == "update":
            old = key if change.old_key is None else tuple(change.old_key.values())
            row = table.pop(old)
            assert change.after is not None
            for name, value in (change.before or {}).items():
                assert row[name] == value, change
            assert key not in table, change
            table[key] = {**row, **change.after}
        else:
            assert change.action == "delete"
            row = table.pop(key)
            for name, value in (change.before or {}).items():
                assert row[name] == value, change


def contents(engine: Engine) -> dict[str, dict[tuple[Any, ...], dict[str, Value]]]:
    """Return the contents of a database in the same form."""
    rows: dict[str, dict[tuple[Any, ...], dict[str, Value]]] = {}
    with engine.connect() as connection:
        for table in Base.metadata.sorted_tables:
            for row in connection.execute(select(table)).mappings():
                key = tuple(row[column.name] for column in table.primary_key)
                rows.setdefault(table.name, {})[key] = {
                    column.name: row[column.name] for column in table.columns
                }
    return rows


def with_authors(sessions: sessionmaker[Session], received: Received, *names: str) -> list[int]:
    """Insert authors; return their numbers."""
    with sessions.begin() as session:
        authors = [Author(name=name) for name in names]
        session.add_all(authors)
        session.flush()
        ids = [author.id for author in authors]
    received.changesets.clear()
    return ids
