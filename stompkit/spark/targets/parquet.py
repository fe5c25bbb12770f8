"""Targets in plain Parquet files: a folder with a subfolder for each table, and a manifest.

``manifest.json`` lists the files of each table and the positions of pipelines. It is replaced
atomically, so a batch is visible in all tables or in none. Files are never changed. Replaced files
stay for a while, for readers of the former manifest. Other files in the folders must be ignored.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa
from pyarrow import fs as pa_fs

from stompkit._common.files import FileLock, make_directory, sync_path, write_atomically
from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.replication.sql import Owners, SchemaError, owners_from_json, owners_to_json
from stompkit.spark.fence import Fence
from stompkit.spark.targets.base import Job
from stompkit.spark.targets.files.dead_letters import DEAD_LETTERS, LETTERS, in_order, new_letters
from stompkit.spark.targets.files.held import Held, folder_of
from stompkit.spark.targets.files.rewrite import File, Rewrite
from stompkit.spark.targets.files.rewriting import TableRewriting
from stompkit.spark.targets.files.staged_work import FOLDER, StagedFiles
from stompkit.spark.targets.files.target import FileTarget

__all__ = ["ParquetTarget", "files_of"]

_MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1
#: Number of versions between two removals of files left by crashes.
_SWEEP: Final = 100


class _File(msgspec.Struct, frozen=True):
    """A file below the folder of its table."""

    path: str
    rows: int
    size: int
    bounds: dict[str, tuple[Any, Any]] = {}


class _Table(msgspec.Struct, frozen=True):
    """A table."""

    #: Name of its folder.
    folder: str
    #: Column names and Arrow type names, for users.
    columns: dict[str, str]
    key: list[str]
    #: The Arrow schema message, in base64.
    schema: str
    files: list[_File] = []


class _Gone(msgspec.Struct, frozen=True):
    """A file that no table contains any more."""

    #: Path including its folder.
    path: str
    #: Time of the replacement in seconds since 1970.
    at: float


class _Manifest(msgspec.Struct, frozen=True):
    """The content of a target."""

    format: int = _FORMAT
    #: Version, incremented with each replacement.
    version: int = 0
    tables: dict[str, _Table] = {}
    #: Fences by pipeline, spool and partition.
    fences: dict[str, dict[str, dict[str, int]]] = {}
    gone: list[_Gone] = []
    #: Source tables of the tables by pipeline. Older versions do not know it.
    owners: dict[str, str] = {}


class ParquetTarget(FileTarget):
    """Parquet files below a folder, local or shared between machines.

    ``parquet:///FOLDER``. ``keep_s`` is the time in seconds for which replaced files are kept.
    """

    def __init__(
        self,
        url: str,
        *,
        create: bool = False,
        evolve: bool = True,
        schema_map: Mapping[str, str] | None = None,
        table_map: Mapping[str, str] | None = None,
        keep_s: float = 3600.0,
    ) -> None:
        """Describe a target; raises ``ValueError`` for a URL without folder."""
        super().__init__(
            url,
            create=create,
            evolve=evolve,
            schema_map=schema_map,
            table_map=table_map,
            keep_s=keep_s,
        )
        place = url.partition("://")[2]
        if not place.startswith("/") or not place.strip("/"):
            raise ValueError(f"{url!r} has to be like parquet:///FOLDER")
        self._root: Final = Path(place)
        self.folder = self._root
        self._keep_s: Final = keep_s
        self._is_swept = False

    # The fence, and tables.

    def prepare(self) -> None:
        """Create the folder."""
        with _errors():
            make_directory(self._root)
        if not self._is_swept:
            self._staged().sweep()
            self._is_swept = True

    def _staged(self) -> StagedFiles:
        return StagedFiles(
            pa_fs.SubTreeFileSystem(str(self._root / FOLDER), pa_fs.LocalFileSystem())
        )

    def _load(self, pipeline: str, spool: str) -> tuple[dict[int, int], Owners]:
        manifest = _read(self._root)
        found = manifest.fences.get(pipeline, {}).get(spool, {})
        fence = {int(number): last for number, last in found.items()}
        return fence, owners_from_json(manifest.owners.get(pipeline))

    def _open(self, name: str) -> Held | None:
        found = _read(self._root).tables.get(name)
        return None if found is None else self._held_of(name, found)

    def _held_of(self, name: str, table: _Table) -> Held:
        folder = self._root / table.folder
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(table.schema)))
        files = [File(each.path, each.rows, each.size, each.bounds) for each in table.files]
        store = pa_fs.SubTreeFileSystem(str(folder), pa_fs.LocalFileSystem())
        return Held(name, schema, tuple(table.key), files, store, folder)

    def _make_table(self, name: str, schema: pa.Schema, key: tuple[str, ...]) -> None:
        manifest = _read(self._root)
        if name not in manifest.tables:
            with _errors():
                self._replace(manifest, {name: _described(name, schema, key)})

    def _add_columns(self, held: Held, columns: Sequence[pa.Field]) -> None:
        manifest = _read(self._root)
        schema = pa.schema([*held.schema, *columns])
        made = _described(held.name, schema, held.key)
        there = manifest.tables[held.name]
        with _errors():
            self._replace(manifest, {held.name: msgspec.structs.replace(made, files=there.files)})

    def _reset_table(self, held: Held, schema: pa.Schema) -> None:
        manifest = _read(self._root)
        there = manifest.tables[held.name]
        gone = [f"{there.folder}/{each.path}" for each in there.files]
        with _errors():
            made = _described(held.name, schema, held.key)
            self._replace(manifest, {held.name: made}, gone)

    def _ahead_of(self, held: Held, job: Job) -> Fence:
        # One manifest contains all tables.
        return {}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with _errors():
            make_directory(self._root)
            lock = FileLock(self._root / ".lock").acquire(timeout_s=None)
        with lock:
            yield

    def _exclusive(self) -> AbstractContextManager[object]:
        return self._locked()

    # Commits.

    def _commit(
        self,
        job: Job,
        tables: Sequence[TableRewriting],
        letters: Sequence[dict[str, Any]],
        ends: Fence,
    ) -> bool:
        manifest = _read(self._root)
        changed: dict[str, _Table] = {}
        gone: list[str] = []
        with _errors():
            if letters:
                there = manifest.tables.get(DEAD_LETTERS) or _described(DEAD_LETTERS, LETTERS, ())
                manifest = _with(manifest, {DEAD_LETTERS: there})
                held = self._held_of(DEAD_LETTERS, there)
                rows = Rewrite(held.folder, held.schema).rows(held.files)
                if new := new_letters(letters, rows):
                    made = TableRewriting(held)
                    made.append(new)
                    tables = [*tables, made]
            for each in tables:
                name = each.held.name
                changed[name], removed = self._written(manifest.tables[name], each)
                gone += removed
            fences = {**manifest.fences.get(job.pipeline, {})}
            fences[job.spool] = {str(number): last for number, last in ends.items()}
            manifest = msgspec.structs.replace(
                manifest,
                fences={**manifest.fences, job.pipeline: fences},
                owners={**manifest.owners, job.pipeline: owners_to_json(self._catalog.owners)},
            )
            self._replace(manifest, changed, gone)
        return True

    def _written(self, table: _Table, made: TableRewriting) -> tuple[_Table, list[str]]:
        """Return a table with its new files, which belong to it once the manifest lists them."""
        folder = made.held.more
        for each in made.added:
            sync_path(folder / each.path)
        sync_path(folder)
        gone = {each.path for each in made.removed}
        files = [each for each in table.files if each.path not in gone]
        files += [_File(each.path, each.rows, each.size, dict(each.bounds)) for each in made.added]
        return msgspec.structs.replace(table, files=files), [f"{table.folder}/{p}" for p in gone]

    def _replace(
        self, manifest: _Manifest, changed: Mapping[str, _Table], gone: Sequence[str] = ()
    ) -> None:
        """Replace the manifest, and remove old files."""
        now = time.time()
        old = [each for each in manifest.gone if each.at <= now - self._keep_s]
        kept = [each for each in manifest.gone if each.at > now - self._keep_s]
        made = msgspec.structs.replace(
            _with(manifest, changed),
            version=manifest.version + 1,
            gone=[*kept, *(_Gone(path, now) for path in gone)],
        )
        new = self._root / f"{_MANIFEST}.new"
        octets = msgspec.json.format(msgspec.json.encode(made), indent=1)
        write_atomically(self._root / _MANIFEST, octets, mode=None, partial=new)
        for each in old:
            (self._root / each.path).unlink(missing_ok=True)
        if made.version % _SWEEP == 0:
            self._sweep(made)

    def _sweep(self, manifest: _Manifest) -> None:
        """Remove unlisted files left by a crash."""
        known = {each.path for each in manifest.gone}
        for table in manifest.tables.values():
            known.update(f"{table.folder}/{each.path}" for each in table.files)
        before = time.time() - max(self._keep_s, 60.0)
        for table in manifest.tables.values():
            for path in (self._root / table.folder).glob("*.parquet"):
                if f"{table.folder}/{path.name}" not in known and path.stat().st_mtime < before:
                    path.unlink(missing_ok=True)

    def dead_letters(self, pipeline: str, spool: str) -> list[dict[str, Any]]:
        """Return the rows of the table of dead letters, in the order of the spool."""
        held = self._open(DEAD_LETTERS)
        if held is None:
            return []
        with _errors():
            return in_order(Rewrite(held.folder, held.schema).rows(held.files), pipeline, spool)


def files_of(folder: str | os.PathLike[str], table: str) -> list[str]:
    """Return the current files of a table of a :class:`ParquetTarget`; empty without a table.

    They stay for as long as the target keeps replaced files: by default an hour. Raises ``OSError``
    and :class:`~stompkit.replication.sinks.sql.SinkUnavailableError`.
    """
    root = Path(folder)
    found = _read(root).tables.get(table)
    return [] if found is None else [str(root / found.folder / each.path) for each in found.files]


def _read(root: Path) -> _Manifest:
    try:
        manifest = msgspec.json.decode((root / _MANIFEST).read_bytes(), type=_Manifest)
    except FileNotFoundError:
        return _Manifest()
    except (OSError, msgspec.MsgspecError) as error:
        raise SinkUnavailableError(f"{root / _MANIFEST} cannot be read: {error}") from error
    if manifest.format != _FORMAT:
        raise SchemaError(
            f"{root / _MANIFEST} has the format {manifest.format}, and {_FORMAT} is known."
            " To go on, take the stompkit that has written it"
        )
    return manifest


def _with(manifest: _Manifest, tables: Mapping[str, _Table]) -> _Manifest:
    return msgspec.structs.replace(manifest, tables={**manifest.tables, **tables})


def _described(name: str, schema: pa.Schema, key: Sequence[str]) -> _Table:
    # The name contains no slash, and no leading dot.
    folder = folder_of(quote(name, safe=" "), name)
    folder = f"%2E{folder[1:]}" if folder.startswith(".") else folder
    octets = schema.serialize().to_pybytes()
    columns = {each.name: str(each.type) for each in schema}
    return _Table(folder, columns, list(key), base64.b64encode(octets).decode())


@contextmanager
def _errors() -> Iterator[None]:
    """Convert errors of the disk, such as a full one, to retryable ones."""
    try:
        yield
    except OSError as error:
        raise SinkUnavailableError(str(error)) from error
