"""The commands of ``stompkit``, each in a module that is imported on use."""

from __future__ import annotations

import argparse
import errno
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final, NamedTuple, Protocol, cast

from stompkit._common.arguments import Parser
from stompkit._common.collector import without_collection
from stompkit._common.files import describe, reason_of
from stompkit._common.spelling import did_you_mean
from stompkit._common.style import discard_output, prepare_streams

__all__ = ["COMMANDS", "Command", "command_of", "main"]


class _Entry(NamedTuple):
    """A command in the list of commands."""

    module: str
    """Its module, within this package."""
    description: str
    """Description in one line."""
    extra: str = ""
    """The extra with the optional libraries that it needs."""


#: The commands, in the order of first use.
COMMANDS: Final = {
    "serve": _Entry("broker.serve", "run a broker in the foreground"),
    "run": _Entry("tools.run", "run a command with a temporary broker"),
    "ping": _Entry("tools.ping", "check that a broker answers"),
    "check-config": _Entry("broker.check_config", "check a broker's configuration file"),
    "show-config": _Entry(
        "broker.show_config", "print all broker settings with their descriptions"
    ),
    "monitoring": _Entry(
        "broker.monitoring", "print alerting rules for Prometheus, or a Grafana dashboard"
    ),
    "passwd": _Entry("broker.passwd", "add, change or remove users in a password file"),
    "store": _Entry("broker.store", "back up, check, compact, export or import a message store"),
    "send": _Entry("messages.send", "send messages to a broker and wait for confirmation"),
    "receive": _Entry(
        "messages.receive",
        "receive messages from a broker, and print them or run a command for each",
    ),
    "status": _Entry("broker.status", "show the state of a broker at a glance"),
    "queues": _Entry("queues.queues", "list the queues and topics of a broker"),
    "peek": _Entry("queues.peek", "show messages of a queue without removing them"),
    "move": _Entry("queues.move", "move messages from one queue to another"),
    "retry": _Entry("queues.retry", "return dead letters to their original queue"),
    "purge": _Entry("queues.purge", "delete the messages of a queue"),
    "pause": _Entry("queues.pause", "stop the deliveries of queues"),
    "resume": _Entry("queues.resume", "resume the deliveries of paused queues"),
    "drain": _Entry("queues.drain", "wait until consumers have emptied queues"),
    "delete": _Entry("queues.delete", "delete an unused destination and its messages"),
    "durables": _Entry("queues.durables", "list durable subscriptions and their owners"),
    "hand-over": _Entry("queues.hand_over", "give a durable subscription to another user"),
    "connections": _Entry("queues.connections", "list the clients of a broker"),
    "failover": _Entry("broker.failover", "make another broker of a shared store active"),
    "close": _Entry("queues.close", "close the connection of a client"),
    "replica": _Entry(
        "replica.command", "replicate databases that all accept writes, also offline"
    ),
    "replicate": _Entry(
        "replication.replicate",
        "replicate database changes to brokers, databases and caches",
        "replication",
    ),
    "bridge": _Entry(
        "bridge.command", "forward messages between brokers, with an optional disk buffer"
    ),
    "spool": _Entry("spool.command", "store messages in a durable log that readers read by offset"),
    "pipeline": _Entry(
        "pipeline.command",
        "apply changes from a spool to databases and event stores, with Spark",
        "spark",
    ),
    "recover": _Entry(
        "replication.recover",
        "publish changes that a crash left committed but unpublished",
        "replication",
    ),
    "conformance": _Entry("tools.conformance", "test a server against the STOMP specifications"),
    "proxy": _Entry("tools.proxy", "relay connections to a broker and inject faults"),
    "tap": _Entry("tools.tap", "show the frames between clients and a broker"),
    "bench": _Entry("tools.bench", "measure the throughput and latency of a broker"),
    "completion": _Entry("tools.completion", "print a completion script for bash, zsh or fish"),
    "version": _Entry(
        "tools.version", "print the versions of stompkit, Python and main dependencies"
    ),
}

_DESCRIPTION: Final = "STOMP for Python: a broker, and tools around it."
_EPILOG: Final = """\
`stompkit COMMAND --help` describes a command. To run the broker:

  stompkit serve                                   in memory, on the loopback interface
  stompkit serve --data DIRECTORY                  with persistent messages
  twistd stompkit --config /etc/stompkit.toml      in the background
  stompkit serve --help                            all options

exit status: 0 success; 1 failure, with the reason on standard error; 2 wrong command line;
130 interrupted. The --help of a command lists further statuses.
"""

_FAILED: Final = 1
_USAGE: Final = 2
_INTERRUPTED: Final = 128 + signal.SIGINT
#: Errors of a write to a full disk, or beyond a limit of the user or of the file.
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Command(Protocol):
    """The interface of a command's module."""

    def main(self, arguments: list[str]) -> int:
        """Run the command; returns its exit status."""

    def parser(self) -> argparse.ArgumentParser:
        """Return the command's parser."""


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {each.description}" for name, each in COMMANDS.items()]
    parser = Parser(
        prog="stompkit",
        usage="stompkit [--help] [--version] COMMAND ...",
        description=_DESCRIPTION,
        epilog="\n".join(["commands:", *lines, "", _EPILOG]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="same as `stompkit version`")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status."""
    prepare_streams()
    try:
        status = _run(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe, as `head` does.
        discard_output()
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        print(
            f"stompkit: cannot write all output: {reason_of(error)}. Free disk space, and repeat"
            " the command",
            file=sys.stderr,
        )
        discard_output()
        return _FAILED
    return status


def _run(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    name = "version" if options.version else options.command
    if name is None:
        parser.print_help(sys.stderr)
        return _USAGE
    if name not in COMMANDS:
        parser.error(f"there is no command {name!r}{did_you_mean(name, list(COMMANDS))}")
    try:
        command = command_of(name)
    except ModuleNotFoundError as error:
        extra = COMMANDS[name].extra
        if not extra or (error.name or "").startswith("stompkit"):
            raise
        needed = f"{error.name}: pip install 'stompkit[{extra}]'"
        print(f"stompkit {name}: this needs {needed}", file=sys.stderr)
        return 1
    try:
        return command.main(options.arguments)
    except OSError as error:
        # A path of the user, since only such errors have a name.
        if error.filename is None:
            raise
        print(f"stompkit {name}: {describe(error)}", file=sys.stderr)
        return 1


def command_of(name: str) -> Command:
    """Import a command; raises ModuleNotFoundError if a required package is missing."""
    with without_collection():
        module: object = import_module(f"stompkit._commands.{COMMANDS[name].module}")
    return cast("Command", module)
