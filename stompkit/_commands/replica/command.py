"""``stompkit replica``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from importlib import import_module
from typing import Final

from stompkit._commands.replica.subcommand import Command, ReplicaUsageError, hide
from stompkit._commands.shared.missing import reason
from stompkit._common.arguments import Parser

__all__ = ["main", "parser"]

_EPILOG: Final = """\
Two laptops, and a broker that both reach now and then:

  anna$ stompkit replica create --db sqlite:///notes.db --branch-id anna
  anna$ stompkit replica put notes milk '{"text": "Buy milk"}' --db sqlite:///notes.db
  anna$ stompkit replica run --db sqlite:///notes.db \\
            --replication-hosts mq:61613 --replication-channel notes

  bob$  stompkit replica run --db sqlite:///notes.db --branch-id bob --once \\
            --replication-hosts mq:61613 --replication-channel notes
  bob$  stompkit replica get notes milk --db sqlite:///notes.db

`stompkit replica COMMAND --help` says more about each.

exit status: 0 all is well; 1 something is wrong, and was said; 2 the command line or the file of
settings is wrong. Where a command has others, its --help lists them.
"""

_USAGE: Final = 2
#: The commands: the module of each, within this package, and its description. A module is imported
#: when its command is used, since the libraries of databases take long to import.
_COMMANDS: Final = {
    "run": ("run", "exchange changes with other replicas, until it is told to stop"),
    "create": ("writing", "make a database a replica, and tell its name"),
    "get": ("writing", "print documents"),
    "put": ("writing", "write a document, or change some of its members"),
    "delete": ("writing", "delete a document"),
    "conflicts": (
        "deciding",
        "list rows that several nodes have changed without knowing of each other",
    ),
    "resolve": ("deciding", "end a conflict: say what a row is to be"),
    "status": ("query", "tell how the replica is: what it has, who lacks what, what is wrong"),
    "peers": ("query", "tell of the other nodes: what they lack, and when they were heard"),
    "check": ("query", "compare the tables with what the replica believes, and with other nodes"),
    "picture": ("query", "draw the history, or who hears whom"),
    "log": ("history", "list changesets, the newest first"),
    "show": ("history", "show a changeset and its changes"),
    "at": ("history", "show the rows as they were at a revision or a time"),
    "diff": ("history", "show what makes one revision of another"),
    "skip": (
        "maintenance",
        "leave out a changeset in quarantine, so that those after it are applied",
    ),
    "retry": (
        "maintenance",
        "try again what is in quarantine, and rows that the tables have refused",
    ),
    "forget": ("maintenance", "do not wait for a node any more that will not come back"),
    "compact": ("maintenance", "forget what need not be kept, as the retention says"),
    "bootstrap": ("maintenance", "take all rows of another node; what only this one has stays"),
    "keygen": ("maintenance", "make a key to sign with, and print its public key"),
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
        description="Databases that all write, go offline, and converge.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (module, what) in _COMMANDS.items():
        added = commands.add_parser(
            name,
            help=what,
            description=f"{what[:1].upper()}{what[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
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
