"""The commands of ``stompkit``, each in a module that is imported on use."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Final, NamedTuple, Protocol, cast

from stompkit._common.arguments import Parser
from stompkit._common.spelling import closest

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
    "run": _Entry("tools.run", "run a command with a broker of its own"),
    "ping": _Entry("tools.ping", "ask a broker whether it works"),
    "check-config": _Entry(
        "broker.check_config", "say what is wrong with a broker's file of settings"
    ),
    "show-config": _Entry("broker.show_config", "print all settings, each with its meaning"),
    "passwd": _Entry("broker.passwd", "add users to a password file, change or remove them"),
    "store": _Entry("broker.store", "check, compact, export or import a broker's messages"),
    "send": _Entry("messages.send", "send messages to any broker, and wait until it has them"),
    "receive": _Entry(
        "messages.receive",
        "receive messages of any broker, and print them or run a command for each",
    ),
    "queues": _Entry("queues.queues", "list the queues and topics of a broker"),
    "peek": _Entry("queues.peek", "look at messages, and take none away"),
    "move": _Entry("queues.move", "move messages from one queue to another"),
    "retry": _Entry("queues.retry", "send dead letters back to where they came from"),
    "purge": _Entry("queues.purge", "remove the messages of a queue, for good"),
    "replica": _Entry("replica.command", "let several databases write, go offline, and converge"),
    "replicate": _Entry(
        "replication.replicate",
        "carry changes from databases to brokers, databases and caches",
        "replication",
    ),
    "bridge": _Entry(
        "bridge.command", "forward from broker to broker, and keep what can't be forwarded yet"
    ),
    "spool": _Entry("spool.command", "keep what brokers send until others have read it, by offset"),
    "pipeline": _Entry(
        "pipeline.command",
        "carry changes from spools to replicas and event stores, by Spark",
        "spark",
    ),
    "recover": _Entry(
        "replication.recover",
        "publish what a crash has left between commit and publication",
        "replication",
    ),
    "conformance": _Entry(
        "tools.conformance", "ask a server how well it keeps to the specifications of STOMP"
    ),
    "proxy": _Entry("tools.proxy", "stand before a broker and break on purpose what passes"),
    "tap": _Entry("tools.tap", "watch the frames between clients and a broker"),
    "bench": _Entry("tools.bench", "measure a broker, quickly"),
    "completion": _Entry(
        "tools.completion", "print what makes a shell complete commands and options"
    ),
    "version": _Entry("tools.version", "print the versions of stompkit and of what it runs on"),
}

_DESCRIPTION: Final = "STOMP for Python: a broker, and tools around it."
_EPILOG: Final = """\
`stompkit COMMAND --help` says more about each. The broker:

  stompkit serve                                   in memory, on loopback
  stompkit serve --data /var/lib/stompkit          messages survive
  twistd stompkit --config /etc/stompkit.toml      in the background
  stompkit serve --help                            all options

exit status: 0 all is well; 1 something is wrong, and was said on standard error; 2 the command
line is; 130 interrupted. Where a command has others, its --help lists them.
"""

_USAGE: Final = 2
_INTERRUPTED: Final = 128 + signal.SIGINT


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
    parser.add_argument("--version", action="store_true", help="the same as the command version")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status."""
    for stream in (sys.stdout, sys.stderr):
        # Characters that the terminal cannot show are printed as escape sequences.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _run(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe, as `head` does; the interpreter must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return status


def _run(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    name = "version" if options.version else options.command
    if name is None:
        parser.print_help(sys.stderr)
        return _USAGE
    if name not in COMMANDS:
        meant = closest(name, list(COMMANDS))
        parser.error(
            f"there is no command {name!r}" + (f"; did you mean {meant}?" if meant else "")
        )
    try:
        command = command_of(name)
    except ModuleNotFoundError as error:
        extra = COMMANDS[name].extra
        if not extra or (error.name or "").startswith("stompkit"):
            raise
        needed = f"{error.name}: pip install 'stompkit[{extra}]'"
        print(f"stompkit {name}: this needs {needed}", file=sys.stderr)
        return 1
    return command.main(options.arguments)


def command_of(name: str) -> Command:
    """Import a command; raises ModuleNotFoundError if a required package is missing."""
    module: object = import_module(f"stompkit._commands.{COMMANDS[name].module}")
    return cast("Command", module)
