"""``stompkit move``."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final

from stompkit._commands.shared.admin import Admin, add_admin_options, admin_parser, on_admin
from stompkit._commands.shared.broker_options import (
    BROKER_HELP,
    Broker,
    BrokerUsageError,
    add_broker_options,
    add_quiet_time,
)
from stompkit._common.arguments import positive
from stompkit._common.spelling import amount

__all__ = ["main", "parser"]

_EPILOG: Final = """\
  stompkit move /queue/a /queue/b --admin localhost:15613
  stompkit move /dlq/orders /queue/orders.odd --selector "customer = 'acme'"
  stompkit move /queue/a /queue/b --mq activemq.example:61613 --limit 100

With --admin, messages move atomically: each is in exactly one queue at any time. --mq works with
any broker: each message is sent to the target, and acknowledged when the broker has confirmed it.
No message is lost, but a lost connection can cause a duplicate. The command ends after --quiet-time
without a message. Headers are kept, except those that describe a delivery. With --mq, the header
stompkit-moved is set. By this header, the command notices if both queues are the same one.

{admin}
{broker}
exit status: 0 success; 1 the broker refused the request or is unreachable; 2 wrong command line;
130 interrupted
"""

_USAGE: Final = 2


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = admin_parser(
        "move", "Move messages from one queue to another.", _EPILOG.replace("{broker}", BROKER_HELP)
    )
    add = parser.add_argument
    add("source", metavar="FROM", help="the source queue, such as /queue/a")
    add("target", metavar="TO", help="the target queue, such as /queue/b")
    add("--limit", type=positive, metavar="N", help="move at most N messages (default: all)")
    add("--selector", metavar="TEXT", help="move only messages that match this selector")
    add(
        "--id",
        dest="ids",
        action="append",
        metavar="ID",
        help="move only the message with this id; repeatable; not with --mq",
    )
    add("--json", action="store_true", help="print the result as JSON")
    add_quiet_time(parser)
    add_admin_options(parser)
    add_broker_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Move messages."""
    made = parser()
    options = made.parse_args(arguments)
    if options.source == options.target:
        made.error(f"both queues are {options.source!r}: name another one")
    if options.mq is None:
        return on_admin("move", options, lambda admin: _move(admin, options))
    if options.ids:
        made.error("--id is for the admin interface: a client cannot ask for a message by its id")
    try:
        broker = Broker.of(options)
    except BrokerUsageError as error:
        print(f"stompkit move: {error}", file=sys.stderr)
        return _USAGE
    from stompkit._commands.queues.moving import move

    status, done = move(
        broker,
        options.source,
        options.target,
        options.quiet_time,
        limit=options.limit,
        selector=options.selector,
    )
    _report(done, as_json=options.json)
    if not status and not done:
        print(
            f"stompkit move: no message came from {options.source!r} in {options.quiet_time:g} s:"
            " it is empty, has another name, or its consumers have the messages",
            file=sys.stderr,
        )
    return status


def _move(admin: Admin, options: argparse.Namespace) -> int:
    answer = admin.post(
        "/api/v1/move",
        host=options.vhost or "",
        to=options.target,
        limit=options.limit,
        ids=options.ids,
        selector=options.selector,
        **{"from": options.source},
    )
    _report(answer["moved"], as_json=options.json)
    return 0


def _report(done: int, *, as_json: bool) -> None:
    print(json.dumps({"moved": done}) if as_json else f"{amount(done, 'message')} moved")
