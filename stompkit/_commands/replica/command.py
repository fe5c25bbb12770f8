"""``stompkit replica``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from importlib import import_module
from typing import Final

from stompkit._commands.replica.subcommand import Command, ReplicaUsageError, hide
from stompkit._commands.shared.missing import reason
from stompkit._common.arguments import Parser, Subcommands

__all__ = ["main", "parser"]

_EPILOG: Final = """\
Two laptops that are connected to a broker from time to time:

  anna$ stompkit replica create --db sqlite:///notes.db --branch-id anna
  anna$ stompkit replica put notes milk '{"text": "Buy milk"}' --db sqlite:///notes.db
  anna$ stompkit replica run --db sqlite:///notes.db \\
            --replication-hosts mq:61613 --replication-channel notes

  bob$  stompkit replica run --db sqlite:///notes.db --branch-id bob --once \\
            --replication-hosts mq:61613 --replication-channel notes
  bob$  stompkit replica get notes milk --db sqlite:///notes.db

`stompkit replica COMMAND --help` describes a command.

exit status: 0 success; 1 failure, with the reason on standard error; 2 wrong command line or
configuration file. The --help of a command lists further statuses.
"""

_USAGE: Final = 2
#: The commands: the module of each, within this package, and its description. A module is imported
#: when its command is used, since the libraries of databases take long to import.
_COMMANDS: Final = {
    "run": ("run", "exchange changes with other replicas until stopped"),
    "create": ("writing", "turn a database into a replica and print its name"),
    "get": ("writing", "print documents"),
    "put": ("writing", "write a document or change some of its members"),
    "delete": ("writing", "delete a document"),
    "conflicts": (
        "deciding",
        "list rows that several nodes changed concurrently",
    ),
    "resolve": ("deciding", "resolve a conflict by setting the row"),
    "status": ("query", "print the state of the replica, the lag of other nodes, and errors"),
    "peers": ("query", "list the other nodes with their lag and last contact"),
    "check": ("query", "compare the tables with the replica's records and with other nodes"),
    "picture": ("query", "draw a diagram of the history or of the connections of nodes"),
    "log": ("history", "list changesets, the newest first"),
    "show": ("history", "show a changeset and its changes"),
    "at": ("history", "show the rows at a revision or a time"),
    "diff": ("history", "show the differences between two revisions"),
    "skip": (
        "maintenance",
        "skip a changeset in quarantine, so that later ones are applied",
    ),
    "retry": (
        "maintenance",
        "retry changesets in quarantine and rows that the tables refused",
    ),
    "forget": ("maintenance", "remove a node that will not return"),
    "compact": ("maintenance", "remove history according to the retention"),
    "bootstrap": (
        "maintenance",
        "copy all rows of another node; rows that only this node has are kept",
    ),
    "keygen": ("maintenance", "create a signing key and print its public key"),
}


def main(arguments: list[str]) -> int:
    """Run a replica, or a command on one."""
    try:
        options = _parser(arguments).parse_args(arguments)
    except ModuleNotFoundError as error:
        needed = f"{error.name}: pip install 'stompkit[replication]'"
        print(f"stompkit replica: this needs {needed}", file=sys.stderr)
        return 1
    command: Command = options.command
    try:
        return command.work(options)
    except ReplicaUsageError as error:
        print(f"stompkit replica: {hide(str(error), options)}", file=sys.stderr)
        return _USAGE
    except Exception as error:
        text = hide(reason(error), options)
        print(f"stompkit replica {options.name}: {text}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    return _parser(_COMMANDS)


def _parser(complete: Collection[str]) -> argparse.ArgumentParser:
    """Return the parser, with the arguments of these commands; others are only listed."""
    parser = Parser(
        prog="stompkit replica",
        description="Replicate databases that all accept writes, also offline.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = Subcommands(parser)
    for name, (module, what) in _COMMANDS.items():
        added = commands.add(name, what)
        if name in complete:
            found: dict[str, Command] = import_module(f"{__package__}.{module}").COMMANDS
            _add_arguments(added, found[name])
            added.set_defaults(name=name, command=found[name])
    return parser


def _add_arguments(parser: argparse.ArgumentParser, command: Command) -> None:
    from stompkit._commands.replica.options import add_database, add_settings

    parser.epilog = command.more
    command.arguments(parser)
    if command.shared == "settings":
        add_settings(parser)
    elif command.shared == "database":
        add_database(parser)
