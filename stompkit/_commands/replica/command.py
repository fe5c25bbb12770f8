"""``stompkit replica``."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from stompkit._commands.replica.deciding import DECIDING
from stompkit._commands.replica.history import PAST
from stompkit._commands.replica.maintenance import CARE
from stompkit._commands.replica.options import (
    Command,
    ReplicaUsageError,
    add_database,
    add_settings,
    hide,
)
from stompkit._commands.replica.query import ASKING
from stompkit._commands.replica.run import RUNNING
from stompkit._commands.replica.writing import WRITING

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
#: Extras with the libraries that only some databases and settings need.
_EXTRAS: Final = {
    "psycopg": "postgresql",
    "pymysql": "mysql",
    "cryptography": "signing",
    "prometheus_client": "metrics",
}


def main(arguments: list[str]) -> int:
    """Run a replica, or a command on one."""
    options = parser().parse_args(arguments)
    command: Command = options.command
    try:
        return command.work(options)
    except ReplicaUsageError as problem:
        print(f"stompkit replica: {hide(str(problem), options)}", file=sys.stderr)
        return _USAGE
    except Exception as error:
        told = hide(_reason(error), options)
        print(f"stompkit replica {command.name}: {told}", file=sys.stderr)
        return 1


def _reason(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        library = (error.name or "").partition(".")[0]
        if library in _EXTRAS:
            return f"this needs {library}: pip install 'stompkit[{_EXTRAS[library]}]'"
    return str(error) or type(error).__name__


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = argparse.ArgumentParser(
        prog="stompkit replica",
        description="Databases that all write, go offline, and converge.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (*RUNNING, *WRITING, *DECIDING, *ASKING, *PAST, *CARE):
        _add(commands, command)
    return parser


def _add(commands: argparse._SubParsersAction[argparse.ArgumentParser], command: Command) -> None:
    added = commands.add_parser(
        command.name,
        help=command.what,
        description=f"{command.what[:1].upper()}{command.what[1:]}.",
        epilog=command.more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.arguments(added)
    if command.shared == "settings":
        add_settings(added)
    elif command.shared == "database":
        add_database(added)
    added.set_defaults(command=command)
