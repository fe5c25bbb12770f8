"""``stompkit send``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from stompkit._commands.shared.broker_options import (
    BROKER_HELP,
    Broker,
    BrokerUsageError,
    add_broker_options,
    positive,
)
from stompkit._common.arguments import Parser

__all__ = ["main", "parser"]

_EPILOG: Final = """\
Each BODY is a message. Without one, standard input is: all of it, or with --lines each of its
lines, or with --jsonl one JSON object a line as `stompkit receive --json` prints them:

  {"destination": "/queue/a", "headers": {"type": "x"}, "body": "text"}     or "body_base64"

  stompkit send /queue/orders hello
  stompkit send /queue/orders --file order.xml -H content-type:application/xml --persistent
  tail -f app.log | stompkit send /topic/log --lines
  stompkit receive /queue/a --json | stompkit send /queue/b --jsonl
  stompkit send /queue/load --count 100000 --rate 500 x

The destination - is that of each line of --jsonl; any other holds for all of them. It ends when the
broker has confirmed every message, by receipts, of which up to --window are waited for at a time.
Where a connection is lost, what was not confirmed is sent again: it may arrive twice. Transactions
are not sent again.

{broker}
exit status: 0 the broker has confirmed all; 1 it has refused one, or can't be reached, or there is
something wrong with a line; 2 the command line is wrong; 130 interrupted (what had been sent was
waited for)
"""

_USAGE: Final = 2


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit send",
        description="Send messages to any broker, and wait until it has them.",
        epilog=_EPILOG.replace("{broker}", BROKER_HELP),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("destination", metavar="DESTINATION", help="such as /queue/orders")
    add("body", metavar="BODY", nargs="*", help="a message each")
    add("--file", type=Path, metavar="FILE", help="read FILE in place of standard input")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--lines", action="store_true", help="each line is a message")
    forms.add_argument("--jsonl", action="store_true", help="each line is a message as JSON")
    add(
        "-H",
        "--header",
        dest="headers",
        type=_header,
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="a header for all messages; can be given several times",
    )
    add("--persistent", action="store_true", help="the same as -H persistent:true")
    add("--count", type=positive, default=1, metavar="N", help="send each message N times")
    add("--rate", type=_rate, metavar="N", help="at most N messages a second")
    add(
        "--transaction",
        type=positive,
        metavar="N",
        help="send N messages at a time, which arrive together or not at all",
    )
    add(
        "--window",
        type=positive,
        default=1000,
        metavar="N",
        help="messages that may wait for their receipts: 1000",
    )
    add(
        "--no-receipts",
        dest="receipts",
        action="store_false",
        help="for a broker that has none; what it refuses or loses is then not noticed",
    )
    add("--json", action="store_true", help="tell at the end, as JSON, how many were confirmed")
    add("--quiet", action="store_true", help="tell no progress")
    add_broker_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Send messages."""
    made = parser()
    # The messages may follow options, as in `send /queue/a --persistent hello`.
    options = made.parse_intermixed_args(arguments)
    if options.body and (options.file or options.lines or options.jsonl):
        made.error("messages are those of the command line, or of a file, not both")
    if not options.destination:
        made.error("the destination is empty: name one, such as /queue/orders")
    if options.destination == "-" and not options.jsonl:
        made.error("the destination - is for --jsonl")
    try:
        broker = Broker.of(options)
        from stompkit._commands.messages.sending import send

        return send(broker, options)
    except BrokerUsageError as error:
        print(f"stompkit send: {error}", file=sys.stderr)
        return _USAGE
    except OSError as error:
        if isinstance(error, BrokenPipeError) or not error.filename:
            raise
        print(f"stompkit send: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:VALUE")
    return name, value


def _rate(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of messages per second above 0")
    return found
