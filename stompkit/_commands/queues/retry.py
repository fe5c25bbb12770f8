"""``stompkit retry``."""

from __future__ import annotations

import argparse
import json
from typing import Final

from stompkit._commands.shared.admin import ADMIN_HELP, Admin, add_admin_options, on_admin
from stompkit._commands.shared.broker_options import positive
from stompkit._commands.shared.text import amount
from stompkit._common.arguments import Parser

__all__ = ["main", "parser"]

_EPILOG: Final = """\
  stompkit peek /dlq/orders                      what there is, with the ids
  stompkit retry /dlq/orders                     all of them
  stompkit retry /dlq/orders --id 17 --id 18

Each dead letter goes back to the queue that it came from, and begins there anew.

{admin}
exit status: 0; 1 the broker refuses, or can't be reached; 2 the command line is wrong
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit retry",
        description="Send dead letters of a stompkit broker back to where they came from.",
        epilog=_EPILOG.replace("{admin}", ADMIN_HELP),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("destination", metavar="DESTINATION", help="such as /dlq/orders")
    add(
        "--id",
        dest="ids",
        action="append",
        metavar="ID",
        help="only this one; can be given several times",
    )
    add("--limit", type=positive, metavar="N", help="the first N of them")
    add("--vhost", default="", metavar="NAME", help="the virtual host")
    add("--json", action="store_true", help="as JSON, for programs")
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
    if options.json:
        print(json.dumps({"retried": answer["retried"]}))
    else:
        print(f"{amount(answer['retried'], 'dead letter')} sent back")
    return 0
