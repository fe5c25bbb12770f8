"""Names in the settings of a job that no change has had so far: they are probably misspelt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from stompkit._common.spelling import did_you_mean
from stompkit.spark.jobs.runs.names_file import NamesFile
from stompkit.spark.jobs.settings import JobName, PipelineSettings
from stompkit.spark.states import Choice

__all__ = ["KnownNames"]


class KnownNames(NamesFile):
    """The tables and columns of all changes that a job has read, in a file beside its lock.

    A pipeline sees the tables of its sources only in changes. Without the names of former runs each
    run would report the tables that rarely change.
    """

    def __init__(self, settings: PipelineSettings, job: JobName) -> None:
        """Read the file; without it, no name is known."""
        self._settings: Final = settings
        self._job: Final = job
        super().__init__(settings, job, "tables.json")

    def unmatched(self) -> list[str]:
        """Return a warning for each name in the settings that matches nothing so far."""
        return list(self._unmatched()) if self.names else []

    def _unmatched(self) -> Iterator[str]:
        how, target, events = self._settings.apply, self._settings.target, self._settings.events
        if self._job == "events":
            yield from self._tables("tables in [events]", events.tables if events else None)
        if self._job != "replicate":
            return
        yield from self._tables("tables in [apply]", how.tables)
        yield from self._tables("keys in [apply]", how.keys if isinstance(how.keys, dict) else ())
        if target is not None:
            schemas = {schema for schema, _ in self.names}
            yield from _unknown("schema-map in [target]", "schema", target.schema_map, schemas)
            yield from self._tables("table-map in [target]", target.table_map)
        choice = Choice(tables=None if how.tables is None else frozenset(how.tables))
        columns = frozenset[str]().union(
            *(columns for table, columns in self.names.items() if choice.has(*table))
        )
        if columns:
            yield from _unknown("column-list in [apply]", "column", how.column_list, columns)
            yield from _unknown(
                "except-column-list in [apply], which excludes nothing",
                "column",
                how.except_column_list,
                columns,
            )

    def _tables(self, setting: str, wanted: Iterable[str] | None) -> Iterator[str]:
        """Yield a warning for each table without a change; an empty name stands for all tables."""
        for name in wanted or ():
            known = {f"{schema}.{table}" if "." in name else table for schema, table in self.names}
            every = known.union(table for _, table in self.names)
            if name and name not in every:
                yield from _unknown(setting, "table", [name], known)


def _unknown(
    setting: str, kind: str, wanted: Iterable[str] | None, known: Iterable[str]
) -> Iterator[str]:
    known = sorted(known)
    for name in wanted or ():
        if name not in known:
            advice = did_you_mean(name, known)
            if not advice and any(sign in name for sign in "*?["):
                advice = "; it is a name here, not a pattern"
            yield f"{setting}: no change so far has a {kind} {name!r}{advice}"
