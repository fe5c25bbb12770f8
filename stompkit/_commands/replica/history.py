"""History commands of ``stompkit replica``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from stompkit._commands.replica.changes import (
    change_lines,
    changes_as_json,
    entry_lines,
    log_lines,
    rows_as_json,
    rows_lines,
)
from stompkit._commands.replica.options import add_json, opened
from stompkit._commands.replica.rows import key_of
from stompkit._commands.replica.status import as_json, print_lines
from stompkit._commands.replica.subcommand import Command, ReplicaUsageError
from stompkit._common.arguments import positive
from stompkit.replica import Replica
from stompkit.replica.history import Entry, Shown
from stompkit.replication.model.values import Value

__all__ = ["COMMANDS"]

#: Batch size of changesets while filtering by author.
_PAGE: Final = 200
_IS_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d{1,6})?)?(Z|[+-]\d\d:\d\d)?"
).fullmatch


def _log(options: argparse.Namespace) -> int:
    with opened(options) as (replica, _):
        key = None
        if options.key is not None:
            if options.table is None:
                raise ReplicaUsageError("--key is one of a table: give --table, too")
            key = key_of(replica, options.table, options.key)
        entries = list(_entries(replica, options, key))
    if options.json:
        print(as_json(entries))
    else:
        print_lines(log_lines(entries, is_graph=options.graph))
    return 0


def _entries(
    replica: Replica, options: argparse.Namespace, key: dict[str, Value] | None
) -> Iterator[Entry]:
    """Yield the selected entries; the history has no index of authors."""
    left, before = options.limit, options.before
    size = left if options.author is None else max(left, _PAGE)
    while left > 0:
        page = replica.history(options.table, key, options.node, size, before)
        for entry in page:
            if options.author is None or entry.author == options.author:
                yield entry
                left -= 1
                if not left:
                    return
        if len(page) < size:
            return
        before = page[-1].name


def _log_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--table", metavar="TABLE", help="only changesets that changed this table")
    add("--key", metavar="KEY", help="with --table: only changesets that changed this row")
    add("--author", metavar="TEXT", help="only changesets of this author")
    add(
        "--node",
        metavar="NAME",
        help="only changesets of this node, given by its origin or branch id",
    )
    add("--before", metavar="REVISION", help="only changesets older than this revision")
    add(
        "--limit",
        type=positive,
        default=50,
        metavar="N",
        help="list at most N changesets (default: 50)",
    )
    add("--graph", action="store_true", help="draw lines to the parents of each changeset")
    add_json(parser)


def _show(options: argparse.Namespace) -> int:
    with opened(options) as (replica, _):
        entry = replica.revisions.entry(options.revision)
        changes = replica.revisions.get(options.revision).changes
    if options.json:
        print(as_json({**msgspec.to_builtins(entry), "changes": changes_as_json(changes)}))
    else:
        print_lines([*entry_lines(entry), "", *change_lines(changes)])
    return 0


def _revision(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("revision", metavar="REVISION", help="a revision, see below")
    add_json(parser)


def _at(options: argparse.Namespace) -> int:
    with opened(options) as (replica, _):
        tables = [options.table] if options.table is not None else None
        found = replica.at(_moment(options.revision), tables)
        if options.key is not None:
            if options.table is None:
                raise ReplicaUsageError("--key is one of a table: give --table, too")
            key = key_of(replica, options.table, options.key)
            found = _only(found, options.table, key)
    if options.json:
        print(as_json(rows_as_json(found)))
    else:
        print_lines(rows_lines(found))
    return 1 if options.key is not None and not any(found.values()) else 0


def _moment(text: str) -> str | datetime:
    return datetime.fromisoformat(text) if _IS_TIME(text) else text


def _only(found: Shown, table: str, key: dict[str, Value]) -> Shown:
    wanted = tuple(key[name] for name in sorted(key))
    row = found.get(table, {}).get(wanted)
    return {table: {} if row is None else {wanted: row}}


def _at_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "revision",
        metavar="REVISION",
        help="a revision, see below, or a time such as 2026-11-21T12:00Z",
    )
    add("--table", metavar="TABLE", help="only rows of this table")
    add("--key", metavar="KEY", help="only this row; the exit status is 1 if it does not exist")
    add_json(parser)


def _diff(options: argparse.Namespace) -> int:
    with opened(options) as (replica, _):
        tables = [options.table] if options.table is not None else None
        changes = replica.diff(options.a, options.b, tables)
    if options.json:
        print(as_json(changes_as_json(changes)))
    else:
        print_lines(change_lines(changes))
    return 0


def _diff_arguments(parser: argparse.ArgumentParser) -> None:
    for name in ("A", "B"):
        parser.add_argument(name.lower(), metavar=name, help="a revision, see below")
    parser.add_argument("--table", metavar="TABLE", help="only rows of this table")
    add_json(parser)


_REVISIONS: Final = """
A revision is origin and number (anna~1f2e3d4c:17), branch id and number (anna:17), the first six
or more digits of an id, or head.
"""

#: The commands of this module, by name.
COMMANDS: Final = {
    "log": Command(
        _log_arguments,
        _log,
        """\
  stompkit replica log --db sqlite:///notes.db --graph
  stompkit replica log --db sqlite:///notes.db --table doc.notes --key milk
  stompkit replica log --db sqlite:///shop.db --table orders --key 'id=5' --author anna
"""
        + _REVISIONS,
    ),
    "show": Command(
        _revision,
        _show,
        "  stompkit replica show anna:17 --db sqlite:///notes.db\n" + _REVISIONS,
    ),
    "at": Command(
        _at_arguments,
        _at,
        """\
  stompkit replica at anna:17 --db sqlite:///notes.db --table doc.notes
  stompkit replica at 2026-11-21T12:00+01:00 --db sqlite:///notes.db --table doc.notes --key milk
"""
        + _REVISIONS,
    ),
    "diff": Command(
        _diff_arguments,
        _diff,
        "  stompkit replica diff anna:17 head --db sqlite:///notes.db\n" + _REVISIONS,
    ),
}
