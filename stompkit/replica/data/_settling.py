"""Writes as many rows of some batches as the database accepts."""

from __future__ import annotations

from collections.abc import Sequence

from stompkit.replica.data._dependency_cycles import untie
from stompkit.replica.data._families import children_last
from stompkit.replica.data._late import LateLinks
from stompkit.replica.data._links import Link
from stompkit.replica.data._many import Values
from stompkit.replica.data._plan import Batch
from stompkit.replica.data._reasons import Reason, RefusedRowError
from stompkit.replica.data._schema import Schema
from stompkit.replica.data._writer import Writer

__all__ = ["settle"]

_BROKEN = Reason("reference", "FOREIGN KEY constraint")
_AT_ONCE = "SET CONSTRAINTS ALL IMMEDIATE"


def settle(writer: Writer, schema: Schema, batches: Sequence[Batch]) -> dict[bytes, Reason]:
    """Write batches in table order; returns the reasons for refused rows.

    The transaction can be committed afterwards: deferred constraints are checked before.
    """
    batches = [_in_order(writer, schema, batch) for batch in batches]
    if not schema.is_late or not _checks_links(writer):
        _write(writer, schema, batches)
        return writer.reasons
    if writer.runner.connection.dialect.name == "sqlite":
        return _write_late(writer, schema, batches)
    try:
        with writer.savepoint():
            reasons = _write_late(writer, schema, batches)
            writer.runner.connection.exec_driver_sql(_AT_ONCE)
        return reasons
    except RefusedRowError:
        # Another constraint is deferred, too: a unique name or a trigger.
        writer.reasons.clear()
        writer.runner.connection.exec_driver_sql(_AT_ONCE)
        _write(writer, schema, batches)
        return writer.reasons


def _write(writer: Writer, schema: Schema, batches: Sequence[Batch]) -> None:
    refused = writer.write(batches)
    while sum(map(len, refused)) > 1:
        left = untie(writer, schema, refused)
        if sum(map(len, left)) == sum(map(len, refused)):
            return
        refused = writer.settle(left)


def _write_late(writer: Writer, schema: Schema, batches: Sequence[Batch]) -> dict[bytes, Reason]:
    """Write what a commit will accept; returns the reasons for the rest."""
    while True:
        reasons = _write_some(writer, schema, batches)
        if len(reasons) == len(_ids(batches)):
            # A row may be valid alone that was left out because of another one.
            reasons = {}
            for batch in batches:
                for place, id in enumerate(batch.ids):
                    reasons.pop(id, None)
                    reasons |= _write_some(writer, schema, [batch.ordered([place])])
        if len(reasons) in (0, len(_ids(batches))):
            return reasons
        # The rows that it depends on may exist by now.
        batches = [batch.only(reasons) for batch in batches]


def _ids(batches: Sequence[Batch]) -> set[bytes]:
    return {id for batch in batches for id in batch.ids}


def _write_some(writer: Writer, schema: Schema, batches: Sequence[Batch]) -> dict[bytes, Reason]:
    """Leave out row after row until a commit is possible; returns their reasons."""
    writer.reasons.clear()
    late = LateLinks(writer.runner, schema.links, batches)
    broken: dict[bytes, Reason] = {}
    while True:
        rest = [batch.only(set(batch.ids) - broken.keys()) for batch in batches]
        more: set[bytes] = set()
        try:
            with writer.savepoint():
                _write(writer, schema, [batch for batch in rest if batch.ids])
                more = late.broken(broken.keys() | writer.reasons.keys())
                if more:
                    raise RefusedRowError(_BROKEN)
        except RefusedRowError:
            writer.reasons.clear()
            broken |= dict.fromkeys(more, _BROKEN)
        else:
            return {**broken, **writer.reasons}


def _checks_links(writer: Writer) -> bool:
    """Return True if the database checks foreign keys: SQLite does so only if enabled."""
    if writer.runner.connection.dialect.name != "sqlite":
        return True
    return bool(writer.runner.connection.exec_driver_sql("PRAGMA foreign_keys").scalar())


def _in_order(writer: Writer, schema: Schema, batch: Batch) -> Batch:
    """Return the batch with rows of the same table after those that they refer to."""
    target, key = batch.shape.target, batch.shape.key
    links = [link for link in schema.links.of(target.identity) if link.parent == target.identity]
    if not links or len(batch) == 1:
        return batch

    def fetch(link: Link) -> list[Values | None]:
        columns = tuple(filter(None, map(target.table.column, link.columns)))
        return [writer.runner.find(target.table, columns, key, row) for row in batch.rows]

    return children_last(batch, links, fetch)
