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
    positive,
    seconds,
)
from stompkit._common.arguments import Parser

__all__ = ["main", "parser"]

_EPILOG: Final = """\
Without --follow or --count it takes what there is, and ends when no message has come for two
seconds; --timeout says how long otherwise. --follow goes on until Ctrl-C, --count N ends after N.

  stompkit receive /queue/orders
  stompkit receive /topic/prices.> --follow --headers
  stompkit receive /queue/orders --count 1 --timeout 30 --json
  stompkit receive /queue/orders --browse                      look, and take nothing
  stompkit receive /queue/jobs --follow --exec ./work          acknowledged if ./work succeeds
  stompkit receive /queue/a --json | stompkit send /queue/b --jsonl

A message is acknowledged when it has been written, or when the command of --exec has ended with 0;
another status refuses it (NACK). The command gets the body on its standard input, and headers as
variables of its environment: content-type as STOMP_CONTENT_TYPE. What has come and was not
acknowledged goes back to the broker at the end, however that comes about. With --ack auto nothing
is acknowledged, and what came ahead is lost.

--browse looks by the header browser:true, which stompkit's broker and ActiveMQ have; on others
messages are received and given back, which marks them as redelivered, and --prefetch (1000 then)
is the most that is seen.

{broker}
exit status: 0; 1 the broker refuses, or can't be reached, or a command of --exec has failed; 2 the
command line is wrong; 3 within --timeout no message has come, or fewer than --count; 130
interrupted, but 0 with --follow
"""

_USAGE: Final = 2


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit receive",
        description="Receive messages of any broker, and print them or give them to a command.",
        epilog=_EPILOG.replace("{broker}", BROKER_HELP),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("destinations", metavar="DESTINATION", nargs="+", help="such as /queue/orders")
    add("--limit", "--count", dest="count", type=positive, metavar="N", help="end after N messages")
    add("--timeout", type=seconds, metavar="SECONDS", help="end when none has come for so long")
    add("--follow", action="store_true", help="go on until interrupted")
    add(
        "--ack",
        choices=("auto", "client", "client-individual"),
        default="client-individual",
        help="the mode of acknowledgements: client-individual",
    )
    add("--browse", action="store_true", help="take nothing away")
    add("--selector", metavar="TEXT", help="only messages of which this is true")
    add("--durable", metavar="NAME", help="have a topic keep what comes meanwhile, for NAME")
    add("--prefetch", type=positive, metavar="N", help="messages that come ahead: 100")
    add(
        "-H",
        "--header",
        dest="headers",
        action="append",
        type=_header,
        default=[],
        metavar="NAME:VALUE",
        help="a further header of SUBSCRIBE; can be given several times",
    )
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print a JSON object for each message")
    forms.add_argument("--raw", action="store_true", help="print bodies only, octet by octet")
    forms.add_argument("--headers", dest="shows", action="store_true", help="print headers, too")
    forms.add_argument(
        "--exec", dest="command", metavar="COMMAND", help="give each message to a shell command"
    )
    add("--quiet", action="store_true", help="tell no progress")
    add_broker_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Receive messages."""
    made = parser()
    options = made.parse_args(arguments)
    if options.follow and (options.count or options.timeout):
        made.error("--follow goes on for ever: give --count or --timeout, or that")
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
