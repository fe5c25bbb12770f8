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
)
from stompkit._common.arguments import Parser, positive

__all__ = ["main", "parser"]

_EPILOG: Final = """\
Each producer sends its share of --count with up to --window outstanding receipts. All consumers
share one queue. Messages are numbered to detect loss, duplicates and wrong order. Latency is the
time between the send call and the delivery to the consumer.

  stompkit bench
  stompkit bench --mq rabbit.example:61613 --login ann --count 50000 --size 1000 --persistent
  stompkit bench --producers 4 --consumers 4 --ack auto --json

The command is one Python process, which limits it to some thousands of messages per second. Use it
to compare settings and to find errors, not to measure the maximum speed of a fast broker. At full
speed, latency is mostly waiting time in the queue; a smaller --window reduces it.

{broker}
exit status: 0 all messages arrived once; 1 messages were lost or duplicated, or with one consumer
reordered, or the broker refused a request or is unreachable; 2 wrong command line; 130 interrupted
"""

_USAGE: Final = 2


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit bench",
        description="Measure the throughput and latency of a broker, and check for lost messages.",
        epilog=_EPILOG.replace("{broker}", BROKER_HELP),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--count",
        type=positive,
        default=10_000,
        metavar="N",
        help="total number of messages (default: 10000)",
    )
    add(
        "--size",
        type=positive,
        default=100,
        metavar="N",
        help="size of a body in bytes (default: 100)",
    )
    add(
        "--producers",
        type=positive,
        default=1,
        metavar="N",
        help="number of sending connections (default: 1)",
    )
    add(
        "--consumers",
        type=positive,
        default=1,
        metavar="N",
        help="number of receiving connections (default: 1)",
    )
    add(
        "--window",
        type=positive,
        default=100,
        metavar="N",
        help="maximum outstanding receipts of a producer (default: 100)",
    )
    add(
        "--prefetch",
        type=positive,
        default=100,
        metavar="N",
        help="maximum unacknowledged messages of a consumer (default: 100)",
    )
    add(
        "--ack",
        choices=("auto", "client", "client-individual"),
        default="client-individual",
        help="acknowledgement mode (default: client-individual)",
    )
    add("--persistent", action="store_true", help="send the header persistent:true")
    add("--no-receipts", dest="receipts", action="store_false", help="send without receipts")
    add("--destination", metavar="NAME", help="an empty queue (default: a new one)")
    add("--json", action="store_true", help="print the result as JSON")
    add("--quiet", action="store_true", help="show no progress")
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
