"""``stompkit durables``."""

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
  stompkit durables --admin localhost:15613
  stompkit durables --filter news
  stompkit durables --watch                                again every two seconds, until Ctrl-C

`owner` is the user to whom a durable subscription belongs. Other users can neither read nor remove
it. `stompkit hand-over` gives it to another user, and `stompkit delete` removes it.

{admin}
exit status: 0 success; 1 the broker refused the request or is unreachable; 2 wrong command line;
130 interrupted
"""
_HEAD: Final = ["name", "topic", "client id", "owner", "host", "consumer", "ready"]


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = admin_parser(
        "durables", "List the durable subscriptions of a stompkit broker.", _EPILOG
    )
    add = parser.add_argument
    add(
        "--filter",
        metavar="TEXT",
        help="list only subscriptions whose name, topic, client id or owner contains this text",
    )
    add("--limit", type=positive, metavar="N", help="list at most N subscriptions (default: all)")
    add_watch_options(parser)
    add_admin_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """List durable subscriptions."""
    options = parser().parse_args(arguments)
    return on_admin(
        "durables", options, lambda admin: watch(options, lambda: _found(admin, options), _table)
    )


def _found(admin: Admin, options: argparse.Namespace) -> dict[str, Any]:
    text = options.filter or ""
    found = [
        each
        for each in admin.get("/api/v1/durables")["durables"]
        if any(text in (each[key] or "") for key in ("name", "destination", "client_id", "owner"))
    ]
    found.sort(key=lambda each: (each["host"], each["name"]))
    return {"total": len(found), "durables": found[: options.limit]}


def _table(document: dict[str, Any]) -> Iterator[str]:
    found = document["durables"]
    if not found:
        yield "there are none"
        return
    rows = [_HEAD]
    for each in found:
        texts = (each["name"], each["destination"], each["client_id"], each["owner"], each["host"])
        rows.append(
            [
                *(shown(text or "") or "-" for text in texts),
                "connected" if each["is_connected"] else "away",
                f"{each['ready']:,}",
            ]
        )
    head, *lines = aligned(rows, right=(6,))
    yield Style(sys.stdout)(head, "bold")
    yield from lines
    if document["total"] > len(found):
        yield f"and {document['total'] - len(found):,} more"
