"""``stompkit connections``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from stompkit._commands.shared.admin import Admin, admin_parser
from stompkit._commands.shared.listing import add_list_options, list_all, pages, table
from stompkit._common.text import shown

__all__ = ["main", "parser"]

_EPILOG: Final = """\
  stompkit connections --admin localhost:15613
  stompkit connections --filter ann
  stompkit connections --watch                             again every two seconds, until Ctrl-C
  stompkit close "$(stompkit connections --filter ann --json | jq -r '.connections[0].id')"

`in flight` counts messages that the client has not acknowledged yet. `blocked` marks a client that
waits for room in a full queue: see when_full in the configuration.

{admin}
exit status: 0 success; 1 the broker refused the request or is unreachable; 2 wrong command line;
130 interrupted
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = admin_parser("connections", "List the clients of a stompkit broker.", _EPILOG)
    add = parser.add_argument
    add(
        "--filter",
        metavar="TEXT",
        help="list only connections whose id, address, user or client id contains this text",
    )
    add_list_options(parser, "connections")
    return parser


def main(arguments: list[str]) -> int:
    """List connections."""
    options = parser().parse_args(arguments)
    return list_all("connections", options, "connections", partial(_found, options), _lines)


def _found(options: argparse.Namespace, admin: Admin) -> list[dict[str, Any]]:
    found = pages(admin, "/api/v1/connections", "connections", contains=options.filter)
    return list({each["id"]: each for each in found}.values())


def _lines(found: Sequence[dict[str, Any]]) -> list[str]:
    rows = [["id", "address", "user", "client id", "host", "protocol", "subscriptions"]]
    rows[0] += ["in flight", "since", ""]
    for each in found:
        texts = [each["id"], each["address"], each["user"], each["client_id"] or "", each["host"]]
        rows.append(
            [
                *(shown(text) or "-" for text in texts),
                each["version"] or each["state"],
                f"{each['subscriptions']:,}",
                f"{each['in_flight']:,}",
                each["connected"].partition(".")[0].replace("T", " "),
                "blocked" if each["is_blocked"] else "",
            ]
        )
    return table(rows, right=(6, 7))
