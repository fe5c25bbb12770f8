"""``stompkit spool``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from typing import Final

from stompkit._commands.shared.logs import start_log
from stompkit._commands.spool.options import SpoolUsageError, address, age, positive, size
from stompkit._common.arguments import Parser
from stompkit.spool import SpoolError

__all__ = ["main", "parser"]

_EPILOG: Final = """\
A spool is a directory with messages in the order in which they came, for programs that read them
at their own pace, and again: Spark's, with the format "stomp", or yours, with
stompkit.spool.SpoolReader. One process receives; any number reads, at the same time.

  stompkit spool run /var/spool/shop --from stomp://mq:61613/queue/orders
  stompkit spool status /var/spool/shop
  stompkit spool show /var/spool/shop --from 1000 --to 1010

`stompkit spool COMMAND --help` says more about each.

exit status: 0; 1 it can't be done, or verify has found damage, which is told; 2 the command line is
wrong
"""

_RUN: Final = """\
A message is acknowledged when it is on the disk, so that none is lost, whatever is killed. One that
the broker delivers again is known by its header event-id, which the producer sets, else by the
broker's message-id, and is not written twice. RabbitMQ delivers again with another message-id: it
takes producers that set event-id.

--from is stomp://LOGIN:PASSCODE@HOST:PORT,HOST:PORT/DESTINATION, or stomps:// for TLS; what is
special in a login, a passcode or a destination is percent-encoded. Several hosts are failover. In
place of a URL, env:NAME is the one in that variable of the environment, and file:PATH the one in
the first line of that file: what stands on a command line can be read by others.

  stompkit spool run spool --from stomp://mq1:61613,mq2:61613/queue/orders --retain-age 7d
  stompkit spool run spool --from file:/etc/shop/mq --ack client --retain-bytes 10GiB
  stompkit spool run spool --from stomp://mq/topic/prices --durable prices
  stompkit spool run spool --from stomp://mq/queue/orders --metrics 9401

It ends by SIGTERM or SIGINT (Ctrl-C), when what it has is written and acknowledged. While the disk
is full it waits, and the broker keeps the messages.
"""

_USAGE: Final = 2


def main(arguments: list[str]) -> int:
    """Receive into a spool, or inspect one."""
    options = parser().parse_args(arguments)
    work: Callable[[argparse.Namespace], int] = options.work
    level = logging.DEBUG if getattr(options, "verbose", False) else logging.WARNING
    start_log(level)
    try:
        return work(options)
    except SpoolUsageError as error:
        print(f"stompkit spool: {error}", file=sys.stderr)
        return _USAGE
    except SpoolError as error:
        reason = str(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    print(f"stompkit spool: {reason}", file=sys.stderr)
    return 1


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit spool",
        description="Keep a broker's messages on disk, for programs that read them at their pace.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(
        name: str, what: str, work: Callable[[argparse.Namespace], int], epilog: str = ""
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name,
            help=what,
            description=f"{what[:1].upper()}{what[1:]}.",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument("directory", metavar="DIR", help="the spool")
        command.set_defaults(work=work)
        return command

    _add_run(add("run", "receive messages of a broker, until it is told to end", _run, _RUN))
    status = add("status", "tell what is in a spool, and how far its readers are", _status)
    readers = add("readers", "list those that read, and for whom messages are kept", _readers)
    readers.add_argument("--forget", metavar="NAME", help="keep nothing for this one any more")
    show = add("show", "print messages", _show)
    show.add_argument("--partition", type=int, metavar="N", help="only of this one")
    show.add_argument("--from", dest="start", type=int, metavar="N", help="the first ordinal")
    show.add_argument("--to", dest="end", type=int, metavar="N", help="the one after the last")
    for command in (status, readers, show):
        command.add_argument("--json", action="store_true", help="as JSON, for programs")
    add("verify", "read everything, and say what is damaged", _verify)
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.usage = "stompkit spool run DIR --from URL [--from URL ...] [options]"
    add = parser.add_argument
    add(
        "--from",
        dest="sources",
        action="append",
        required=True,
        metavar="URL",
        help="a broker and a destination, see below",
    )
    add("--partitions", type=positive, metavar="N", help="of a new spool: 1, and all in one order")
    add(
        "--metrics-port",
        "--metrics",
        dest="metrics",
        type=address,
        metavar="[HOST:]PORT",
        help="serve Prometheus there; without a host on the loopback interface",
    )
    add("--quiet", action="store_true", help="tell no progress")
    add("--verbose", action="store_true", help="log more to standard error")
    group = parser.add_argument_group("the broker")
    add = group.add_argument
    modes = group.add_mutually_exclusive_group()
    modes.add_argument(
        "--ack",
        choices=("client-individual", "client", "auto"),
        default="client-individual",
        help="client has one acknowledgement for many; with auto a crash loses messages",
    )
    modes.add_argument(
        "--no-ack",
        dest="ack",
        action="store_const",
        const="auto",
        help="for a broker that knows no acknowledgements: as --ack auto",
    )
    add(
        "--no-receipts",
        dest="receipts",
        action="store_false",
        help="for a broker that has none",
    )
    add("--durable", default="", metavar="NAME", help="have topics keep what comes meanwhile")
    add("--selector", default="", metavar="TEXT", help="only messages of which this is true")
    add("--prefetch", type=positive, metavar="N", help="messages that come ahead: four groups")
    add("--group", type=positive, default=500, metavar="N", help="messages written at once: 500")
    group = parser.add_argument_group("the disk")
    add = group.add_argument
    add("--retain-age", type=age, metavar="AGE", help="remove what is older, such as 7d or 12h")
    add("--retain-bytes", type=size, metavar="N", help="remove the oldest above this, as 10GiB")
    add(
        "--readers-expire",
        type=age,
        metavar="AGE",
        help="keep nothing for readers that have not been seen for so long",
    )
    add(
        "--seal",
        choices=("arrow", "parquet", "never"),
        default="never",
        help="rewrite what is complete so that Spark reads it at once; this needs pyarrow",
    )


def _run(options: argparse.Namespace) -> int:
    from stompkit._commands.spool.run import run

    return run(options)


def _status(options: argparse.Namespace) -> int:
    from stompkit._commands.spool.status import print_status

    return print_status(options.directory, as_json=options.json)


def _readers(options: argparse.Namespace) -> int:
    from stompkit._commands.spool.status import forget_reader, print_readers

    if options.forget is not None:
        return forget_reader(options.directory, options.forget)
    return print_readers(options.directory, as_json=options.json)


def _show(options: argparse.Namespace) -> int:
    from stompkit._commands.spool.show import show

    return show(
        options.directory, options.partition, options.start, options.end, as_json=options.json
    )


def _verify(options: argparse.Namespace) -> int:
    from stompkit._commands.spool.show import verify

    return verify(options.directory)
