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
)
from stompkit._common.arguments import Parser, positive
from stompkit._common.files import describe

__all__ = ["main", "parser"]

_EPILOG: Final = """\
Each BODY is sent as one message. Without BODY, standard input is sent: as one message, with --lines
one message per line, or with --jsonl one JSON object per line in the format of `stompkit receive
--json`:

  {"destination": "/queue/a", "headers": {"type": "x"}, "body": "text"}     or "body_base64"

  stompkit send /queue/orders hello
  stompkit send /queue/orders --file order.xml -H content-type:application/xml --persistent
  tail -f app.log | stompkit send /topic/log --lines
  stompkit receive /queue/a --json | stompkit send /queue/b --jsonl
  stompkit send /queue/load --count 100000 --rate 500 x

With --jsonl, the destination - means the destination of each line; any other destination applies to
all lines. The command ends when the broker has confirmed every message with a receipt. Up to
--window receipts are outstanding at a time. After a lost connection, unconfirmed messages are sent
again, so a message can arrive twice. Transactions are not sent again.

{broker}
exit status: 0 all messages are confirmed; 1 a message was refused, the broker is unreachable, or a
line is invalid; 2 wrong command line; 130 interrupted, after waiting for outstanding receipts
"""

_USAGE: Final = 2


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit send",
        description="Send messages to a broker and wait until it has confirmed them.",
        epilog=_EPILOG.replace("{broker}", BROKER_HELP),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("destination", metavar="DESTINATION", help="the destination, such as /queue/orders")
    add("body", metavar="BODY", nargs="*", help="body of a message; repeatable")
    add("--file", type=Path, metavar="FILE", help="read this file instead of standard input")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--lines", action="store_true", help="send each line as a message")
    forms.add_argument(
        "--jsonl", action="store_true", help="send each line, a JSON object, as a message"
    )
    add(
        "-H",
        "--header",
        dest="headers",
        type=_header,
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="header for all messages; repeatable",
    )
    add("--persistent", action="store_true", help="same as -H persistent:true")
    add(
        "--count",
        type=positive,
        default=1,
        metavar="N",
        help="send each message N times (default: 1)",
    )
    add("--rate", type=_rate, metavar="N", help="maximum messages per second (default: unlimited)")
    add(
        "--transaction",
        type=positive,
        metavar="N",
        help="send the messages in transactions of N messages",
    )
    add(
        "--window",
        type=positive,
        default=1000,
        metavar="N",
        help="maximum number of outstanding receipts (default: 1000)",
    )
    add(
        "--no-receipts",
        dest="receipts",
        action="store_false",
        help="request no receipts, for brokers without them; lost or refused messages are "
        "not detected",
    )
    add("--json", action="store_true", help="print the number of confirmed messages as JSON")
    add("--quiet", action="store_true", help="print neither progress nor the result")
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
        print(f"stompkit send: {describe(error)}", file=sys.stderr)
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
