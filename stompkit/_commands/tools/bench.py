"""``stompkit bench``."""

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
)
from stompkit._common.arguments import Parser

__all__ = ["main", "parser"]

_EPILOG: Final = """\
Each producer sends its share of --count as fast as receipts for --window messages allow; all
consumers share the queue. Every message has a number, so that it is told whether all have come,
whether any came twice, and whether those of each producer came in order to each consumer. The
latency is the time from the call that sends to the consumer.

  stompkit bench
  stompkit bench --mq rabbit.example:61613 --login ann --count 50000 --size 1000 --persistent
  stompkit bench --producers 4 --consumers 4 --ack auto --json

All of it is one process in Python, which has its limit at some thousands of messages a second: it
compares settings and tells what is broken, and says no more than that of a broker that is faster.
A latency that is measured at full speed is mostly that of standing in line: a smaller --window
makes the line shorter.

{broker}
exit status: 0 all messages have come, once; 1 some have not, or came twice, or not in order where
one consumer is enough to tell; or the broker refuses, or can't be reached; 2 the command line is
wrong; 130 interrupted
"""

_USAGE: Final = 2


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit bench",
        description="Measure a broker, quickly: messages a second, latency, and whether all come.",
        epilog=_EPILOG.replace("{broker}", BROKER_HELP),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--count", type=positive, default=10_000, metavar="N", help="messages in all: 10000")
    add("--size", type=positive, default=100, metavar="N", help="octets of a body: 100")
    add("--producers", type=positive, default=1, metavar="N", help="connections that send: 1")
    add("--consumers", type=positive, default=1, metavar="N", help="connections that receive: 1")
    add("--window", type=positive, default=100, metavar="N", help="unconfirmed messages each: 100")
    add("--prefetch", type=positive, default=100, metavar="N", help="of each consumer: 100")
    add(
        "--ack",
        choices=("auto", "client", "client-individual"),
        default="client-individual",
        help="the mode of acknowledgements: client-individual",
    )
    add("--persistent", action="store_true", help="send persistent:true")
    add("--no-receipts", dest="receipts", action="store_false", help="send without receipts")
    add("--destination", metavar="NAME", help="a queue with nothing in it; default: a new one")
    add("--json", action="store_true", help="as JSON, for programs")
    add("--quiet", action="store_true", help="tell no progress")
    add_broker_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Measure a broker."""
    options = parser().parse_args(arguments)
    try:
        broker = Broker.of(options)
    except BrokerUsageError as error:
        print(f"stompkit bench: {error}", file=sys.stderr)
        return _USAGE
    from stompkit._commands.tools.benching import bench

    return bench(broker, options)
