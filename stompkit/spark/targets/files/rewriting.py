"""New files of one table, made by the operations of a batch in several steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.spark.targets.files.held import Held
from stompkit.spark.targets.files.rewrite import File, Rewrite
from stompkit.spark.targets.files.row_changeset import RowChangeset, moved_keys
from stompkit.spark.targets.planning.plan import Op

__all__ = ["TableRewriting", "by_table"]


class TableRewriting:
    """Rewrites the files of a table, which stays as it is until the new files are committed.

    Each step has the changes of some tasks in memory, and reads the files of the step before.
    """

    def __init__(self, held: Held) -> None:
        """Start with the current files."""
        self.held = held
        self.written = 0
        self.deleted = 0
        self._files: list[File] = list(held.files)
        self._steps: list[File] = []

    def apply(self, ops: Sequence[Op]) -> None:
        """Apply operations in order; raises ApplyError for one that files do not support."""
        changeset = RowChangeset(self.held.name)
        for names, keys in moved_keys(ops).items():
            try:
                found = Rewrite(self.held.folder, self.held.schema).find(self._files, names, keys)
            except OSError as error:
                raise SinkUnavailableError(str(error)) from error
            changeset.know(names, found)
        for op in ops:
            changeset.do(op)
        self._run(changeset)
        self.written += changeset.written
        self.deleted += changeset.deleted

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows without key."""
        changeset = RowChangeset(self.held.name)
        changeset.append(map(dict, rows))
        self._run(changeset)

    def _run(self, changeset: RowChangeset) -> None:
        rewrite = Rewrite(self.held.folder, self.held.schema)
        try:
            self.held.folder.create_dir(".", recursive=True)
            rewrite.run(self._files, changeset)
        except OSError as error:
            raise SinkUnavailableError(str(error)) from error
        finally:
            self._steps += rewrite.added
        removed = {each.path for each in rewrite.removed}
        self._files = [each for each in self._files if each.path not in removed] + rewrite.added

    @property
    def added(self) -> list[File]:
        """The new files of the table."""
        before = {each.path for each in self.held.files}
        return [each for each in self._files if each.path not in before]

    @property
    def removed(self) -> list[File]:
        """The files that the table no longer has."""
        after = {each.path for each in self._files}
        return [each for each in self.held.files if each.path not in after]

    def clean(self) -> None:
        """Delete the files that only lay between two steps; others are removed with old files."""
        after = {each.path for each in self._files}
        for each in self._steps:
            if each.path not in after:
                with suppress(OSError):
                    self.held.folder.delete_file(each.path)


def by_table(ops: Iterable[Op], find: Callable[[str, str], Held | None]) -> dict[str, list[Op]]:
    """Return operations by the target's table; raises ApplyError if it lacks something."""
    found: dict[str, list[Op]] = defaultdict(list)
    for op in ops:
        held = find(*op.table)
        if held is None:
            raise ApplyError(f"the target has no table {'.'.join(filter(None, op.table))!r}")
        if any(name not in held.table.columns for name in (*op.key, *op.others)):
            raise ApplyError(f"the target's table {held.name!r} has lost a column")
        found[held.name].append(op)
    return found
