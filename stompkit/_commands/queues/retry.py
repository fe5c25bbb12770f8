"""``stompkit retry``."""

from __future__ import annotations

import argparse
import json
from typing import Final

from stompkit._commands.shared.admin import (
    Admin,
    AdminError,
    add_admin_options,
    admin_parser,
    on_admin,
)
from stompkit._common.arguments import positive
from stompkit._common.spelling import amount
from stompkit._common.text import shown

__all__ = ["main", "parser"]

_EPILOG: Final = """\
  stompkit peek /dlq/orders                      list the dead letters with their ids
  stompkit retry /dlq/orders                     retry all
  stompkit retry /dlq/orders --id 17 --id 18

Each dead letter returns to its original queue, and its delivery attempts start again from zero.

{admin}
exit status: 0 success; 1 the broker refused the request or is unreachable; 2 wrong command line
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = admin_parser(
        "retry", "Return dead letters of a stompkit broker to their original queue.", _EPILOG
    )
    add = parser.add_argument
    add("destination", metavar="DESTINATION", help="the dead-letter queue, such as /dlq/orders")
    add(
        "--id",
        dest="ids",
        action="append",
        metavar="ID",
        help="retry only the message with this id; repeatable",
    )
    add("--limit", type=positive, metavar="N", help="retry at most N messages (default: all)")
    add("--vhost", default="", metavar="NAME", help="virtual host")
    add("--json", action="store_true", help="print the result as JSON")
    add_admin_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Retry dead letters."""
    options = parser().parse_args(arguments)
    return on_admin("retry", options, lambda admin: _retry(admin, options))


def _retry(admin: Admin, options: argparse.Namespace) -> int:
    answer = admin.post(
        "/api/v1/retry",
        host=options.vhost,
        name=options.destination,
        ids=options.ids,
        limit=options.limit,
    )
    if options.ids and not answer["retried"]:
        ids = ", ".join(map(shown, options.ids))
        raise AdminError(
            f"{shown(options.destination)} has no message with the id {ids}, or its queue is full:"
            " `stompkit peek` lists the ids"
        )
    if options.json:
        print(json.dumps({"retried": answer["retried"]}))
    else:
        print(f"{amount(answer['retried'], 'dead letter')} sent back")
    return 0
