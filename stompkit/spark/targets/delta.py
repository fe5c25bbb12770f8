"""Targets in Delta Lake: a Delta table for each table of the source. Requires the extra ``delta``.

A commit to a table contains the pipeline's position in it, as application transactions. So a table
that is ahead of the others after a crash skips changes that it already contains. The table of dead
letters always exists, and its last commit contains the position of the whole pipeline.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs as pa_fs

from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.replication.sql import Owners, SchemaError, owners_from_json, owners_to_json
from stompkit.spark.fence import Fence
from stompkit.spark.targets.base import Job
from stompkit.spark.targets.files.dead_letters import DEAD_LETTERS, LETTERS, in_order, new_letters
from stompkit.spark.targets.files.delta_schema import (
    add_invariants,
    allow_types,
    key_of,
    supported,
    with_key,
)
from stompkit.spark.targets.files.held import Held, folder_of
from stompkit.spark.targets.files.rewrite import File, Rewrite
from stompkit.spark.targets.files.rewriting import TableRewriting
from stompkit.spark.targets.files.staged_work import FOLDER, StagedFiles
from stompkit.spark.targets.files.target import FileTarget

__all__ = ["DeltaTarget"]

#: Application transaction in every commit of stompkit: of two concurrent commits one is restarted.
_OURS: Final = "stompkit"
#: Number of table versions between two removals of obsolete files.
_VACUUM: Final = 100
#: Parts of a path that the package deltalake decodes or rejects.
_UNUSABLE: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\[\]\\\x00-\x1f]")


class DeltaTarget(FileTarget):
    """Delta tables by `delta-rs <https://delta-io.github.io/delta-rs/>`__, each in its folder.

    ``delta:///FOLDER``, ``delta+s3://BUCKET/PATH``, or any other store of the package deltalake.
    ``storage_options`` are those of the package.
    """

    def __init__(
        self,
        url: str,
        *,
        create: bool = False,
        evolve: bool = True,
        schema_map: Mapping[str, str] | None = None,
        table_map: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """Describe a target; raises ``ValueError`` for a URL without location."""
        super().__init__(
            url,
            create=create,
            evolve=evolve,
            schema_map=schema_map,
            table_map=table_map,
            storage_options=dict(storage_options or {}),
        )
        kind, _, place = url.partition("://")
        scheme = kind.removeprefix("delta").removeprefix("+")
        if not place.strip("/") or (not scheme and not place.startswith("/")):
            raise ValueError(f"{url!r} has to be like delta:///FOLDER or delta+s3://BUCKET/PATH")
        if found := _UNUSABLE.search(place):
            raise ValueError(
                f"{url!r} contains {found[0]!r}, which paths of Delta tables cannot have"
            )
        self._root: Final = (f"{scheme}://{place}" if scheme else place).rstrip("/")
        self.folder = Path(place) if scheme in ("", "file") else None
        self._is_swept = False

    # The fence, and tables.

    def prepare(self) -> None:
        """Create the table of dead letters, which also contains the fence."""
        with _errors():
            if self._delta(DEAD_LETTERS) is None:
                self._make(DEAD_LETTERS, Schema.from_arrow(LETTERS))
        if not self._is_swept:
            self._staged().sweep()
            self._is_swept = True

    def _staged(self) -> StagedFiles:
        options = self._settings["storage_options"] or None
        handler = DeltaStorageHandler(f"{self._root}/{DEAD_LETTERS}", options)
        return StagedFiles(pa_fs.SubTreeFileSystem(FOLDER, pa_fs.PyFileSystem(handler)))

    def _load(self, pipeline: str, spool: str) -> tuple[dict[int, int], Owners]:
        with _errors():
            letters = self._delta(DEAD_LETTERS)
        if letters is None:
            return {}, {}
        return _fence(letters, pipeline, spool, ""), _owners(letters, pipeline)

    def _open(self, name: str) -> Held | None:
        with _errors():
            delta = self._delta(name)
            if delta is None:
                return None
            fields = supported(name, delta)
            schema = pa.schema(delta.schema())
            key = key_of(fields)
            files = [
                _file(row) for row in pa.table(delta.get_add_actions(flatten=True)).to_pylist()
            ]
            handler = DeltaStorageHandler.from_table(delta._table)
            return Held(name, schema, key, files, pa_fs.PyFileSystem(handler), delta)

    def _delta(self, name: str) -> DeltaTable | None:
        if name in (".", ".."):
            raise SchemaError(f"a table cannot be called {name!r}")
        try:
            return DeltaTable(
                f"{self._root}/{_folder(name)}",
                storage_options=self._settings["storage_options"] or None,
            )
        except TableNotFoundError:
            return None

    def _make(self, name: str, schema: Schema) -> None:
        DeltaTable.create(
            f"{self._root}/{_folder(name)}",
            schema,
            mode="ignore",
            storage_options=self._settings["storage_options"] or None,
        )

    def _make_table(self, name: str, schema: pa.Schema, key: tuple[str, ...]) -> None:
        with _errors():
            self._make(name, with_key(schema, key))
            made = self._delta(name)
            assert made is not None
            add_invariants(made)

    def _add_columns(self, held: Held, columns: Sequence[pa.Field]) -> None:
        with _errors():
            allow_types(held.more, columns)
            held.more.alter.add_columns(Schema.from_arrow(pa.schema(columns)).fields)
            add_invariants(held.more)

    def _reset_table(self, held: Held, schema: pa.Schema) -> None:
        delta: DeltaTable = held.more
        with _errors():
            allow_types(delta, schema)
            delta.update_incremental()
            delta.create_write_transaction(
                [],
                "overwrite",
                with_key(schema, held.key),
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(_OURS, delta.version() + 1)]
                ),
            )
            delta.update_incremental()
            add_invariants(delta)

    def _exclusive(self) -> AbstractContextManager[object]:
        # Delta itself detects concurrent commits.
        return nullcontext()

    def _ahead_of(self, held: Held, job: Job) -> Fence:
        own = _fence(held.more, job.pipeline, job.spool, "table")
        return {number: last for number, last in own.items() if last > job.fence.get(number, -1)}

    # Commits.

    def _commit(
        self,
        job: Job,
        tables: Sequence[TableRewriting],
        letters: Sequence[dict[str, Any]],
        ends: Fence,
    ) -> bool:
        try:
            with _errors(CommitFailedError):
                if any([add_invariants(each.held.more) for each in tables]):
                    # The tables have other versions now: their changes are staged again.
                    self._found.clear()
                    return False
                self._store_owners(job)
                self._bury(job, letters, ends)
                for each in tables:
                    self._commit_table(each, job, ends)
                self._close_batch(job, ends)
        except CommitFailedError:
            # Another process has committed: its changes are read first.
            self._found.clear()
            return False
        return True

    def _store_owners(self, job: Job) -> None:
        """Commit the source tables of the tables, before their rows."""
        delta = self._delta(DEAD_LETTERS)
        assert delta is not None
        owners = self._catalog.owners
        if owners != _owners(delta, job.pipeline):
            told = {_property(job.pipeline): owners_to_json(owners)}
            delta.alter.set_table_properties(told, raise_if_not_exists=False)

    def _commit_table(self, table: TableRewriting, job: Job, ends: Fence) -> None:
        """Commit the rows of one table, and its position."""
        now = round(time.time() * 1000)
        removed = [RemoveAction(each.path, True, now, each.size) for each in table.removed]
        actions = [*map(_add_action, table.added), *removed]
        self._commit_one(table.held, actions, job, "table", ends)

    def _bury(self, job: Job, letters: Sequence[dict[str, Any]], ends: Fence) -> None:
        """Commit the dead letters that are not stored yet."""
        held = self._open(DEAD_LETTERS)
        assert held is not None
        if not letters:
            return
        rows = Rewrite(held.folder, held.schema).rows(held.files)
        if new := new_letters(letters, rows):
            table = TableRewriting(held)
            table.append(new)
            self._commit_table(table, job, ends)

    def _close_batch(self, job: Job, ends: Fence) -> None:
        """Commit the position of the batch, which all tables now contain."""
        held = self._open(DEAD_LETTERS)
        assert held is not None
        if _fence(held.more, job.pipeline, job.spool, "") != job.fence:
            raise CommitFailedError("the fence has moved")
        self._commit_one(held, [], job, "", ends)

    def _commit_one(self, held: Held, actions: list[Any], job: Job, what: str, ends: Fence) -> None:
        delta: DeltaTable = held.more
        ends = _furthest(_fence(delta, job.pipeline, job.spool, what), ends)
        marks = [
            # Numbered without gaps, so that they can be counted.
            Transaction(_mark(job.pipeline, job.spool, number, what), ends.get(number, -1))
            for number in range(max(ends, default=-1) + 1)
        ]
        marks.append(Transaction(_OURS, delta.version() + 1))
        delta.create_write_transaction(
            actions,
            "append",
            delta.schema(),
            commit_properties=CommitProperties(app_transactions=marks),
        )
        if (delta.version() + 1) % _VACUUM == 0:
            delta.update_incremental()
            delta.vacuum(dry_run=False)

    def dead_letters(self, pipeline: str, spool: str) -> list[dict[str, Any]]:
        """Return the rows of the table of dead letters, in the order of the spool."""
        with _errors():
            held = self._open(DEAD_LETTERS)
            if held is None:
                return []
            return in_order(Rewrite(held.folder, held.schema).rows(held.files), pipeline, spool)


def _folder(name: str) -> str:
    """Return the folder of a table.

    The package deltalake decodes percent signs, and rejects some other characters.
    """
    return folder_of(quote(name, safe=" ").replace("%", "="), name)


def _mark(pipeline: str, spool: str, number: int, what: str) -> str:
    return "/".join(filter(None, (_OURS, what, quote(pipeline, safe=""), spool, str(number))))


def _fence(delta: DeltaTable, pipeline: str, spool: str, what: str) -> dict[int, int]:
    """Return the ordinals in a table's commits."""
    fence: dict[int, int] = {}
    number = 0
    while (last := delta.transaction_version(_mark(pipeline, spool, number, what))) is not None:
        if last >= 0:
            fence[number] = last
        number += 1
    return fence


def _owners(letters: DeltaTable, pipeline: str) -> Owners:
    """Return the source tables that a pipeline has written to tables."""
    return owners_from_json(letters.metadata().configuration.get(_property(pipeline)))


def _property(pipeline: str) -> str:
    return f"{_OURS}.tables.{pipeline}"


def _furthest(one: Fence, other: Fence) -> Fence:
    return {each: max(one.get(each, -1), other.get(each, -1)) for each in {*one, *other}}


def _file(row: Mapping[str, Any]) -> File:
    """Return a file of a table from Delta's metadata."""
    bounds = {
        column.removeprefix("min."): (low, row[f"max.{column.removeprefix('min.')}"])
        for column, low in row.items()
        # Writers truncate or round times and decimals in statistics.
        if column.startswith("min.")
        and type(low) in (int, str)
        and type(row.get(f"max.{column.removeprefix('min.')}")) in (int, str)
    }
    return File(row["path"], row.get("num_records") or 0, row["size_bytes"], bounds)


def _add_action(file: File) -> AddAction:
    stats = {
        "numRecords": file.rows,
        "minValues": {name: low for name, (low, _) in file.bounds.items()},
        "maxValues": {name: high for name, (_, high) in file.bounds.items()},
    }
    now = round(time.time() * 1000)
    return AddAction(file.path, file.size, {}, now, True, json.dumps(stats))


@contextmanager
def _errors(*passed: type[Exception]) -> Iterator[None]:
    """Convert errors of the store and of concurrent commits to retryable ones."""
    try:
        yield
    except (OSError, DeltaError) as error:
        if isinstance(error, (*passed, TableNotFoundError)):
            raise
        raise SinkUnavailableError(str(error)) from error
