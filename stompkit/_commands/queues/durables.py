"""``stompkit durables``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from stompkit._commands.shared.admin import Admin, admin_parser
from stompkit._commands.shared.listing import add_list_options, list_all, table
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
    add_list_options(parser, "subscriptions")
    return parser


def main(arguments: list[str]) -> int:
    """List durable subscriptions."""
    options = parser().parse_args(arguments)
    return list_all("durables", options, "durables", partial(_found, options), _lines)


def _found(options: argparse.Namespace, admin: Admin) -> list[dict[str, Any]]:
    text = options.filter or ""
    found = [
        each
        for each in admin.get("/api/v1/durables")["durables"]
        if any(text in (each[key] or "") for key in ("name", "destination", "client_id", "owner"))
    ]
    return sorted(found, key=lambda each: (each["host"], each["name"]))


def _lines(found: Sequence[dict[str, Any]]) -> list[str]:
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
    return table(rows, right=(6,))
