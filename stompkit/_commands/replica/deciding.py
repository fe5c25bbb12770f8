"""Conflict commands of ``stompkit replica``."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from stompkit._commands.replica.conflicts import conflict_lines, conflicts_as_json
from stompkit._commands.replica.documents import as_columns
from stompkit._commands.replica.options import add_json, opened
from stompkit._commands.replica.rows import key_of
from stompkit._commands.replica.status import as_json
from stompkit._commands.replica.subcommand import Command, ReplicaUsageError
from stompkit._commands.replica.writing import (
    add_author,
    add_values,
    assigned,
    print_changeset,
    writable,
)
from stompkit._common.arguments import positive
from stompkit.replica import Replica, RevisionError

__all__ = ["COMMANDS"]


def _conflicts(options: argparse.Namespace) -> int:
    with opened(options) as (replica, _):
        found = replica.conflicts(options.table, options.limit)
        if options.json:
            print(as_json(conflicts_as_json(found)))
            return 0
        for line in conflict_lines(found, lambda name: _author_of(replica, name)):
            print(line)
    if not found:
        print("nothing is in conflict")
    return 0


def _author_of(replica: Replica, name: str) -> str:
    try:
        return replica.revisions.entry(name).author
    except RevisionError:
        return ""  # it is compacted


def _conflicts_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--table", metavar="TABLE", help="only conflicts of this table")
    add("--limit", type=positive, default=50, metavar="N", help="list at most N rows (default: 50)")
    add_json(parser)


def _resolve(options: argparse.Namespace) -> int:
    values = None if options.pick is not None else assigned(options.set)
    if values == {}:
        raise ReplicaUsageError("resolve: give --pick winner, --pick loser 1, or --set NAME=VALUE")
    if values is not None and options.column is not None:
        raise ReplicaUsageError("resolve: --column is for --pick; --set names columns itself")
    if options.pick is not None and options.set:
        raise ReplicaUsageError("resolve: give --pick or --set, and not both")
    pick = None if options.pick is None else " ".join(options.pick)
    column = options.column
    if column is not None:
        (column,) = as_columns(options.table, {column: None})
    with writable(options) as (replica, setup):
        key = key_of(replica, options.table, options.key)
        try:
            made = replica.resolve(
                options.table,
                key,
                None if values is None else as_columns(options.table, values),
                pick=pick,
                column=column,
                author=setup.author,
                comment=options.comment,
            )
        except LookupError as problem:
            print(f"stompkit replica resolve: {problem.args[0]}", file=sys.stderr)
            return 1
    return print_changeset(made)


def _resolve_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("table", metavar="TABLE", help="table as listed by `conflicts`, such as doc.notes")
    add(
        "key",
        metavar="KEY",
        help='key of the row: milk, 5, id=5, or for several columns {"shop": 1, "id": 5}',
    )
    add(
        "--pick",
        nargs="+",
        metavar=("winner|loser", "N"),
        help="take this version of those that `conflicts` lists",
    )
    add("--column", metavar="NAME", help="with --pick: resolve only this column")
    add_values(parser)
    add_author(parser)


#: The commands of this module, by name.
COMMANDS: Final = {
    "conflicts": Command(
        _conflicts_arguments,
        _conflicts,
        """\
Each conflict has a winner, which is the same on all nodes and is stored in the table.

  stompkit replica conflicts --db sqlite:///notes.db
""",
    ),
    "resolve": Command(
        _resolve_arguments,
        _resolve,
        """\
  stompkit replica resolve doc.notes milk --pick loser 1 --db sqlite:///notes.db
  stompkit replica resolve doc.notes milk --set 'text=Buy oat milk' --db sqlite:///notes.db
  stompkit replica resolve orders 5 --pick winner --column price --config shop.toml

exit status: 0 success; 1 the row has no conflict, or failure
""",
    ),
}
