"""Commands of ``stompkit replica`` that create replicas, and read and write documents."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from stompkit._commands.replica.documents import document_text, parse_document
from stompkit._commands.replica.options import Setup, opened
from stompkit._commands.replica.subcommand import Command, ReplicaUsageError
from stompkit._commands.shared.values import parse_assignment, shown_value
from stompkit._common.spelling import amount
from stompkit._common.text import shown
from stompkit.replica import Replica
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.vectors import dot_text
from stompkit.replication.model.values import Value

__all__ = ["COMMANDS", "add_author", "add_values", "assigned", "print_changeset", "writable"]


@contextmanager
def writable(options: argparse.Namespace) -> Iterator[tuple[Replica, Setup]]:
    """Open a replica for writing; its rules and tables must match the stored ones."""
    with opened(options) as (replica, setup):
        replica.create()
        yield replica, setup


def add_author(parser: argparse.ArgumentParser) -> None:
    """Add the options for author and comment of a changeset."""
    add = parser.add_argument
    add("--author", metavar="TEXT", help="author of the change, for the history")
    add("--comment", default="", metavar="TEXT", help="comment on the change, for the history")
    add(
        "--signing-key",
        default=argparse.SUPPRESS,
        metavar="FILE",
        help="file of the key that signs the change",
    )


def print_changeset(made: object) -> int:
    """Print the name of the new changeset, if there is one."""
    if isinstance(made, SignedChangeset):
        changeset = made.changeset
        print(dot_text((changeset.origin, changeset.sequence)))
    else:
        print("nothing has changed")
    return 0


# The replica.


def _create(options: argparse.Namespace) -> int:
    with opened(options, is_made=True) as (replica, _):
        replica.create()
        print(replica.origin)
        if options.import_existing:
            print(f"{amount(replica.import_existing(), 'row')} imported")
    return 0


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--import",
        action="store_true",
        dest="import_existing",
        help="publish the existing rows, and changes and deletions that were not recorded",
    )


# Documents.


def _get(options: argparse.Namespace) -> int:
    with opened(options) as (replica, _):
        documents = replica.documents
        if options.collection is None:
            for name in documents.collections():
                print(shown(name))
        elif options.id is None:
            for name, document in documents.find(options.collection, options.prefix):
                print(f"{shown_value(name)}  {document_text(document, is_short=True)}")
        else:
            found = documents.get(options.collection, options.id)
            if found is None:
                reason = f"there is no {shown(options.collection)} {shown(options.id)}"
                print(f"stompkit replica get: {reason}", file=sys.stderr)
                return 1
            print(document_text(found))
    return 0


def _get_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("collection", nargs="?", metavar="COLLECTION", help="collection (default: list all names)")
    add("id", nargs="?", metavar="ID", help="id of the document (default: print all, one per line)")
    add(
        "--prefix",
        default="",
        metavar="TEXT",
        help="with all documents: only ids that start with this text",
    )


def _put(options: argparse.Namespace) -> int:
    is_patch = bool(options.set or options.remove)
    if is_patch == (options.document is not None):
        raise ReplicaUsageError(
            "put: give a DOCUMENT, or --set and --remove to change one that is there"
        )
    members = assigned(options.set)
    document = {}
    if not is_patch:
        text = sys.stdin.read() if options.document == "-" else options.document
        try:
            document = parse_document(text)
        except ValueError as problem:
            raise ReplicaUsageError(f"put: {problem}") from None
    with (
        writable(options) as (replica, setup),
        replica.documents.transaction(author=setup.author, comment=options.comment) as transaction,
    ):
        place = options.collection, options.id
        if is_patch:
            transaction.patch(*place, members, remove=options.remove)
        else:
            transaction.put(*place, document)
    return print_changeset(transaction.result)


def assigned(texts: Iterable[str]) -> dict[str, Value]:
    """Parse the values of --set; raises :class:`ReplicaUsageError`."""
    try:
        return dict(map(parse_assignment, texts))
    except ValueError as problem:
        raise ReplicaUsageError(f"--set: {problem}") from None


def _put_arguments(parser: argparse.ArgumentParser) -> None:
    _place(parser)
    add = parser.add_argument
    add(
        "document", nargs="?", metavar="DOCUMENT", help="the document in JSON; - for standard input"
    )
    add_values(parser)
    add(
        "--remove",
        action="append",
        default=[],
        metavar="NAME",
        help="remove this member; repeatable",
    )
    add_author(parser)


def add_values(parser: argparse.ArgumentParser) -> None:
    """Add the option for :func:`assigned`."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a member; VALUE is JSON or else text; repeatable",
    )


def _place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("collection", metavar="COLLECTION", help="name of the collection")
    parser.add_argument("id", metavar="ID", help="id of the document, any text")


def _delete(options: argparse.Namespace) -> int:
    with (
        writable(options) as (replica, setup),
        replica.documents.transaction(author=setup.author, comment=options.comment) as transaction,
    ):
        transaction.delete(options.collection, options.id)
    return print_changeset(transaction.result)


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    _place(parser)
    add_author(parser)


#: The commands of this module, by name.
COMMANDS: Final = {
    "create": Command(
        _create_arguments,
        _create,
        """\
Running the command again has no effect. `run` also creates the replica.

  stompkit replica create --db sqlite:///notes.db --branch-id anna
  stompkit replica create --config shop.toml --import
""",
        "settings",
    ),
    "get": Command(
        _get_arguments,
        _get,
        """\
  stompkit replica get --db sqlite:///notes.db
  stompkit replica get notes --db sqlite:///notes.db
  stompkit replica get notes milk --db sqlite:///notes.db

exit status: 0 success; 1 no such document, or failure
""",
    ),
    "put": Command(
        _put_arguments,
        _put,
        """\
If the replica has rules or a signing key, use the same --config as for run.

  stompkit replica put notes milk '{"text": "Buy milk", "done": false}' --db sqlite:///notes.db
  stompkit replica put notes milk --set done=true --author anna --db sqlite:///notes.db
  stompkit replica put notes roof - --db sqlite:///notes.db <roof.json
""",
    ),
    "delete": Command(
        _delete_arguments,
        _delete,
        "  stompkit replica delete notes milk --db sqlite:///notes.db\n",
    ),
}
