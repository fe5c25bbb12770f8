"""``stompkit spool``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from typing import Final

from stompkit._commands.shared.logs import start_log
from stompkit._commands.spool.options import SpoolUsageError, address, age, opened, size
from stompkit._common.arguments import Parser, Subcommands, positive
from stompkit._common.files import describe
from stompkit.spool import SpoolError

__all__ = ["main", "parser"]

_EPILOG: Final = """\
A spool is a directory that stores messages in the order of their arrival. Programs read it at their
own pace, and repeatedly: Spark with the format "stomp", or Python with stompkit.spool.SpoolReader.
One process writes to a spool; any number of processes can read it at the same time.

  stompkit spool run /var/spool/shop --from stomp://mq:61613/queue/orders
  stompkit spool status /var/spool/shop
  stompkit spool show /var/spool/shop --from 1000 --to 1010
  stompkit spool serve /var/spool/shop --listen 10.0.0.9:7461 --token-file /etc/shop/token

`stompkit spool COMMAND --help` describes a command.

exit status: 0 success; 1 failure, or verify found damage, which is printed; 2 wrong command line
"""

_RUN: Final = """\
A message is acknowledged after it is written to disk, so no message is lost if a process is killed.
Redelivered messages are recognised by the header event-id, which the producer sets, or else by the
broker's message-id, and are not stored twice. RabbitMQ changes the message-id of a redelivered
message; there, producers have to set event-id.

--from is stomp://LOGIN:PASSCODE@HOST:PORT,HOST:PORT/DESTINATION, or stomps:// for TLS. Special
characters in login, passcode and destination are percent-encoded. Several hosts are used for
failover. env:NAME takes the URL from an environment variable, file:PATH from the first line of a
file, so that other users of the machine cannot read a passcode.

  stompkit spool run spool --from stomp://mq1:61613,mq2:61613/queue/orders --retain-age 7d
  stompkit spool run spool --from file:/etc/shop/mq --ack client --retain-bytes 10GiB
  stompkit spool run spool --from stomp://mq/topic/prices --durable prices
  stompkit spool run spool --from stomp://mq/queue/orders --metrics 9401

SIGTERM or SIGINT (Ctrl-C) stops the command after received messages are written and acknowledged.
While the disk is full, the command waits and messages stay in the broker.
"""

_SERVE: Final = """\
Readers on other machines use the URL of the server instead of the directory: the option spool of
Spark's format "stomp", or SpoolReader. They read the same messages by the same ordinals, so a
checkpoint made with the directory continues with the server, and the reverse.

The server only reads messages. The only files that it writes are the positions of registered
readers. `stompkit spool run --serve` does the same in the receiving process.

The token file has a token of 16 or more characters in its first line. Further lines are further
tokens. The file is read again when it has changed. Without --certificate, others on the network can
read tokens and messages.

  openssl rand -hex 32 > /etc/shop/token
  stompkit spool serve spool --listen 10.0.0.9:7461 --token-file /etc/shop/token
  stompkit spool serve spool --listen 0.0.0.0:7461 --token-file token --certificate server.pem
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
        reason = describe(error)
    print(f"stompkit spool: {reason}", file=sys.stderr)
    return 1


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit spool",
        description="Store a broker's messages in a durable log that readers read by offset.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = Subcommands(parser).add
    run = add("run", "receive messages from a broker until stopped", work=_run, epilog=_RUN)
    serve = add("serve", "serve a spool to readers on other machines", work=_serve, epilog=_SERVE)
    for command in (run, serve):
        command.add_argument("directory", metavar="DIR", help="directory of the spool")
    _add_run(run)
    _add_serve(serve)
    status = add(
        "status", "print the contents of a spool and the positions of its readers", work=_status
    )
    readers = add("readers", "list the readers, and the messages kept for them", work=_readers)
    readers.add_argument(
        "--forget", metavar="NAME", help="remove this reader; no messages are kept for it"
    )
    show = add("show", "print messages", work=_show)
    show.add_argument("--partition", type=int, metavar="N", help="only this partition")
    show.add_argument("--from", dest="start", type=int, metavar="N", help="first ordinal")
    show.add_argument("--to", dest="end", type=int, metavar="N", help="ordinal after the last one")
    for command in (status, readers, show):
        command.add_argument("--json", action="store_true", help="print JSON")
    verify = add("verify", "read the whole spool and report damage", work=_verify)
    for command in (status, readers, show, verify):
        _add_spool(command)
    return parser


def _add_spool(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "spool", metavar="SPOOL", help="directory of the spool, or the URL of its server"
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help="file with the token that the server requires"
    )
    parser.add_argument(
        "--ca", metavar="FILE", help="certificates of authorities for https, as PEM"
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.usage = "stompkit spool run DIR --from URL [--from URL ...] [options]"
    add = parser.add_argument
    add(
        "--from",
        dest="sources",
        action="append",
        required=True,
        metavar="URL",
        help="URL of a broker and a destination, see below; repeatable",
    )
    add(
        "--partitions",
        type=positive,
        metavar="N",
        help="number of partitions of a new spool; only one partition keeps the order of "
        "all messages (default: 1)",
    )
    add(
        "--metrics-port",
        "--metrics",
        dest="metrics",
        type=address,
        metavar="[HOST:]PORT",
        help="serve Prometheus metrics at this address (default host: 127.0.0.1)",
    )
    add("--quiet", action="store_true", help="show no progress")
    add("--verbose", action="store_true", help="write a detailed log to standard error")
    group = parser.add_argument_group("the broker")
    add = group.add_argument
    modes = group.add_mutually_exclusive_group()
    modes.add_argument(
        "--ack",
        choices=("client-individual", "client", "auto"),
        default="client-individual",
        help="acknowledgement mode; client acknowledges several messages at once, with "
        "auto a crash loses messages (default: client-individual)",
    )
    modes.add_argument(
        "--no-ack",
        dest="ack",
        action="store_const",
        const="auto",
        help="same as --ack auto, for brokers without ACK",
    )
    add(
        "--no-receipts",
        dest="receipts",
        action="store_false",
        help="request no receipts, for brokers without them",
    )
    add(
        "--durable",
        default="",
        metavar="NAME",
        help="use a durable subscription of this name to topics",
    )
    add(
        "--selector",
        default="",
        metavar="TEXT",
        help="receive only messages that match this selector",
    )
    add(
        "--prefetch",
        type=positive,
        metavar="N",
        help="maximum number of unacknowledged messages (default: four times --group)",
    )
    add(
        "--group",
        type=positive,
        default=500,
        metavar="N",
        help="number of messages in a write (default: 500)",
    )
    group = parser.add_argument_group("readers on other machines")
    group.add_argument(
        "--serve",
        type=address,
        metavar="[HOST:]PORT",
        help="serve the spool at this address, see `stompkit spool serve --help` (default host: "
        "127.0.0.1)",
    )
    _add_server_options(group)
    group = parser.add_argument_group("the disk")
    add = group.add_argument
    add(
        "--retain-age",
        type=age,
        metavar="AGE",
        help="remove messages older than this, such as 7d or 12h",
    )
    add(
        "--retain-bytes",
        type=size,
        metavar="N",
        help="remove the oldest messages above this size, such as 10GiB",
    )
    add(
        "--readers-expire",
        type=age,
        metavar="AGE",
        help="keep no messages for readers that were inactive for this time",
    )
    add(
        "--seal",
        choices=("arrow", "parquet", "never"),
        default="never",
        help="convert complete segments for direct reading by Spark; requires pyarrow "
        "(default: never)",
    )


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        type=address,
        required=True,
        metavar="[HOST:]PORT",
        help="address of the server (default host: 127.0.0.1)",
    )
    _add_server_options(parser)
    parser.add_argument("--quiet", action="store_true", help="do not print the URL")


def _add_server_options(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--token-file", metavar="FILE", help="file with the token that readers have to send"
    )
    group.add_argument(
        "--certificate",
        metavar="FILE",
        help="serve over TLS, with the certificate and the key in this PEM file",
    )


def _run(options: argparse.Namespace) -> int:
    from stompkit._commands.spool.run import run

    return run(options)


def _serve(options: argparse.Namespace) -> int:
    from stompkit._commands.spool.serve import serve

    return serve(options)


def _status(options: argparse.Namespace) -> int:
    from stompkit._commands.spool.status import print_status

    return print_status(opened(options), as_json=options.json)


def _readers(options: argparse.Namespace) -> int:
    from stompkit._commands.spool.status import forget_reader, print_readers

    if options.forget is not None:
        return forget_reader(opened(options), options.forget)
    return print_readers(opened(options), as_json=options.json)


def _show(options: argparse.Namespace) -> int:
    from stompkit._commands.spool.show import show

    return show(
        opened(options), options.partition, options.start, options.end, as_json=options.json
    )


def _verify(options: argparse.Namespace) -> int:
    from stompkit._commands.spool.show import verify

    return verify(opened(options))
