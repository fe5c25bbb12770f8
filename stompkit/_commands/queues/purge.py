"""``stompkit purge``."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final

from stompkit._commands.shared.admin import (
    Admin,
    add_admin_options,
    admin_parser,
    confirmed,
    on_admin,
)
from stompkit._commands.shared.broker_options import (
    BROKER_HELP,
    Broker,
    BrokerUsageError,
    add_broker_options,
    add_quiet_time,
)
from stompkit._common.spelling import amount
from stompkit._common.text import shown

__all__ = ["main", "parser"]

_EPILOG: Final = """\
  stompkit purge /queue/old --admin localhost:15613
  stompkit purge /dlq/orders --yes
  stompkit purge /queue/old --mq rabbit.example:61613 --login ann --yes

With --admin, all messages are deleted except those that are delivered but not acknowledged. --mq
works with any broker: messages are received and acknowledged until none arrives for --quiet-time.

{admin}
{broker}
exit status: 0 success; 1 the broker refused the request or is unreachable, or the question was
answered with no; 2 wrong command line, or no terminal to ask on and no --yes; 130 interrupted
"""

_USAGE: Final = 2


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = admin_parser(
        "purge", "Delete the messages of a queue.", _EPILOG.replace("{broker}", BROKER_HELP)
    )
    add = parser.add_argument
    add("destination", metavar="DESTINATION", help="the queue, such as /queue/old")
    add("--yes", action="store_true", help="do not ask for confirmation")
    add("--json", action="store_true", help="print the result as JSON")
    add_quiet_time(parser)
    add_admin_options(parser)
    add_broker_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Remove messages."""
    options = parser().parse_args(arguments)
    if options.mq is None:
        return on_admin("purge", options, lambda admin: _purge(admin, options))
    try:
        broker = Broker.of(options)
        where = f"{shown(options.destination)} of {broker.label}"
        if not confirmed("purge", f"Remove all messages of {where}?", yes=options.yes):
            return 1
    except BrokerUsageError as error:
        print(f"stompkit purge: {error}", file=sys.stderr)
        return _USAGE
    from stompkit._commands.queues.moving import purge

    status, done = purge(broker, options.destination, options.quiet_time)
    _report(done, as_json=options.json)
    return status


def _purge(admin: Admin, options: argparse.Namespace) -> int:
    host = options.vhost or ""
    found = admin.get("/api/v1/destination", host=host or None, name=options.destination)
    what = amount(found["ready"] + found["delayed"], "message")
    question = f"Remove {what} of {shown(options.destination)}?"
    if not confirmed("purge", question, yes=options.yes):
        return 1
    answer = admin.post("/api/v1/purge", host=host, name=options.destination)
    _report(answer["purged"], as_json=options.json)
    return 0


def _report(done: int, *, as_json: bool) -> None:
    print(json.dumps({"purged": done}) if as_json else f"{amount(done, 'message')} removed")
