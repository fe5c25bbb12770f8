"""``stompkit receive``."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from stompkit._commands.shared.broker_options import (
    BROKER_HELP,
    Broker,
    BrokerUsageError,
    add_broker_options,
    seconds,
)
from stompkit._common.arguments import Parser, positive

__all__ = ["main", "parser"]

_EPILOG: Final = """\
Without --follow and --limit, the command receives all waiting messages. It ends after two seconds
without a message; --timeout changes this time. --follow continues until Ctrl-C.

  stompkit receive /queue/orders
  stompkit receive /topic/prices.> --follow --headers
  stompkit receive /queue/orders --limit 1 --timeout 30 --json
  stompkit receive /queue/orders --browse                      without removing messages
  stompkit receive /queue/jobs --follow --exec ./work          acknowledged if ./work succeeds
  stompkit receive /queue/a --json | stompkit send /queue/b --jsonl

A message is acknowledged when it has been printed, or when the command of --exec has returned 0.
Any other status rejects it (NACK). The command reads the body from standard input, and headers from
environment variables: content-type from STOMP_CONTENT_TYPE. At the end, messages that are not
acknowledged return to the broker. With --ack auto, messages are not acknowledged, and prefetched
messages are lost.

--browse uses the header browser:true, which stompkit's broker and ActiveMQ support. In a long
persistent queue, stompkit's broker shows only the first messages. A warning on standard error says
how many follow; `stompkit peek` shows all. From other brokers, messages are received and returned,
which marks them as redelivered. In this case --prefetch (default: 1000) limits the number of
messages shown, as it does with ActiveMQ. A warning says if there may be more.

{broker}
exit status: 0 success, also after an interrupt with --follow; 1 the broker refused the request or
is unreachable, or a command of --exec failed; 2 wrong command line; 3 no message, or fewer than
--limit, within --timeout; 130 interrupted
"""

_USAGE: Final = 2


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit receive",
        description="Receive messages from a broker, and print them or run a command for each.",
        epilog=_EPILOG.replace("{broker}", BROKER_HELP),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "destinations",
        metavar="DESTINATION",
        nargs="+",
        help="a destination, such as /queue/orders; repeatable",
    )
    add(
        "--limit", "--count", dest="count", type=positive, metavar="N", help="stop after N messages"
    )
    add(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="stop after this many seconds without a message (default: 2; unlimited with "
        "--follow or --limit)",
    )
    add("--follow", action="store_true", help="continue until interrupted")
    add(
        "--ack",
        choices=("auto", "client", "client-individual"),
        default="client-individual",
        help="acknowledgement mode (default: client-individual)",
    )
    add("--browse", action="store_true", help="show messages without removing them")
    add("--selector", metavar="TEXT", help="receive only messages that match this selector")
    add("--durable", metavar="NAME", help="use a durable subscription of this name to a topic")
    add(
        "--prefetch",
        type=positive,
        metavar="N",
        help="maximum number of unacknowledged messages (default: 100)",
    )
    add(
        "-H",
        "--header",
        dest="headers",
        action="append",
        type=_header,
        default=[],
        metavar="NAME:VALUE",
        help="additional header of SUBSCRIBE; repeatable",
    )
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print each message as a JSON object")
    forms.add_argument("--raw", action="store_true", help="print only the bodies, unchanged")
    forms.add_argument(
        "--headers", dest="shows", action="store_true", help="print the headers as well"
    )
    forms.add_argument(
        "--exec", dest="command", metavar="COMMAND", help="run this shell command for each message"
    )
    add("--quiet", action="store_true", help="show no progress")
    add_broker_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Receive messages."""
    made = parser()
    options = made.parse_args(arguments)
    if "" in options.destinations:
        made.error("the destination is empty: name one, such as /queue/orders")
    if options.follow and (options.count or options.timeout):
        made.error("--follow never ends: leave it out, or leave out --count and --timeout")
    if options.durable and len(options.destinations) > 1:
        made.error("--durable is for one destination: its name is that of one subscription")
    if options.browse and (
        options.command or options.durable or options.ack != "client-individual"
    ):
        made.error("--browse takes nothing: so there is neither --exec nor --durable nor --ack")
    try:
        broker = Broker.of(options)
    except BrokerUsageError as error:
        print(f"stompkit receive: {error}", file=sys.stderr)
        return _USAGE
    from stompkit._commands.messages.receiving import receive

    return receive(broker, options)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:VALUE")
    return name, value
