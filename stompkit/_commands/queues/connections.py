"""``stompkit connections``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, Final

from stompkit._commands.shared.admin import Admin, add_admin_options, admin_parser, on_admin
from stompkit._commands.shared.text import aligned
from stompkit._commands.shared.watching import add_watch_options, watch
from stompkit._common.arguments import positive
from stompkit._common.style import Style
from stompkit._common.text import shown

__all__ = ["main", "parser"]

_EPILOG: Final = """\
  stompkit connections --admin localhost:15613
  stompkit connections --filter ann
  stompkit connections --watch                             again every two seconds, until Ctrl-C
  stompkit close "$(stompkit connections --filter ann --json | jq -r '.connections[0].id')"

`in flight` counts messages that the client has not acknowledged yet.

{admin}
exit status: 0 success; 1 the broker refused the request or is unreachable; 2 wrong command line;
130 interrupted
"""
_PAGE: Final = 1000


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = admin_parser("connections", "List the clients of a stompkit broker.", _EPILOG)
    add = parser.add_argument
    add(
        "--filter",
        metavar="TEXT",
        help="list only connections whose id, address, user or client id contains this text",
    )
    add("--limit", type=positive, metavar="N", help="list at most N connections (default: all)")
    add_watch_options(parser)
    add_admin_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """List connections."""
    options = parser().parse_args(arguments)
    return on_admin(
        "connections", options, lambda admin: watch(options, lambda: _found(admin, options), _table)
    )


def _found(admin: Admin, options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    offset = 0
    while True:
        page = admin.get(
            "/api/v1/connections", contains=options.filter, offset=offset, limit=_PAGE
        )["connections"]
        # Connections may end between two pages, which then overlap.
        found |= {each["id"]: each for each in page}
        offset += len(page)
        if len(page) < _PAGE:
            break
    return {"total": len(found), "connections": list(found.values())[: options.limit]}


def _table(document: dict[str, Any]) -> Iterator[str]:
    found = document["connections"]
    if not found:
        yield "there are none"
        return
    rows = [["id", "address", "user", "client id", "host", "protocol", "subscriptions"]]
    rows[0] += ["in flight", "since"]
    for each in found:
        texts = [each["id"], each["address"], each["user"], each["client_id"] or "", each["host"]]
        rows.append(
            [
                *(shown(text) or "-" for text in texts),
                each["version"] or each["state"],
                f"{each['subscriptions']:,}",
                f"{each['in_flight']:,}",
                each["connected"].partition(".")[0].replace("T", " "),
            ]
        )
    head, *lines = aligned(rows, right=(6, 7))
    yield Style(sys.stdout)(head, "bold")
    yield from lines
    if document["total"] > len(found):
        yield f"and {document['total'] - len(found):,} more"
