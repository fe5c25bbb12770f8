"""``stompkit queues``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from stompkit._commands.shared.admin import Admin, admin_parser
from stompkit._commands.shared.listing import add_list_options, list_all, pages, table
from stompkit._commands.shared.text import size
from stompkit._common.style import Style
from stompkit._common.text import shown

__all__ = ["main", "parser"]

_EPILOG: Final = """\
  stompkit queues --admin localhost:15613
  stompkit queues --sort ready --filter orders
  stompkit queues --kind dlq --sort ready
  stompkit queues --watch                                  again every two seconds, until Ctrl-C
  stompkit queues --json | jq '.destinations[].name'

`ready` counts messages that wait for a consumer. `in flight` counts delivered messages that are not
acknowledged yet. `in` and `out` are messages per second.

{admin}
exit status: 0 success; 1 the broker refused the request or is unreachable; 2 wrong command line;
130 interrupted
"""

#: Sort keys, each with True for descending order.
_SORTS: Final = {
    "name": False,
    "ready": True,
    "in-flight": True,
    "delayed": True,
    "octets": True,
    "consumers": True,
    "in": True,
    "out": True,
}


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = admin_parser("queues", "List the queues and topics of a stompkit broker.", _EPILOG)
    add = parser.add_argument
    add("--filter", metavar="TEXT", help="list only names that contain this text")
    add(
        "--kind",
        choices=("queue", "topic", "fanout", "temp-queue", "temp-topic", "dlq", "durable"),
        help="list only destinations of this kind",
    )
    add("--vhost", metavar="NAME", help="list only destinations of this virtual host")
    add("--sort", choices=(*_SORTS,), default="name", help="sort by this column (default: name)")
    add_list_options(parser, "destinations")
    parser.spare = "--filter {}"
    return parser


def main(arguments: list[str]) -> int:
    """List destinations."""
    options = parser().parse_args(arguments)
    return list_all("queues", options, "destinations", partial(_found, options), _lines)


def _found(options: argparse.Namespace, admin: Admin) -> list[dict[str, Any]]:
    """Return the selected destinations in order."""
    found = pages(
        admin,
        "/api/v1/destinations",
        "destinations",
        host=options.vhost,
        kind=options.kind,
        contains=options.filter,
        sort="name",
    )
    # Sorted here and not by the broker: pages of changing data would not fit together.
    unique = {(each["host"], each["name"]): each for each in found}
    ordered = [unique[key] for key in sorted(unique)]
    key = options.sort.replace("-", "_")
    if _SORTS[options.sort]:
        ordered.sort(
            key=lambda each: (_rate(each, key) or 0.0) if key in ("in", "out") else each[key],
            reverse=True,
        )
    return ordered


def _lines(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    style = Style(sys.stdout)
    has_hosts = any(each["host"] for each in found)
    head = ["name", "ready", "in flight", "delayed", "size", "consumers", "in", "out", ""]
    rows = [[*(["host"] if has_hosts else []), *head]]
    for each in found:
        cells = [shown(each["host"])] if has_hosts else []
        cells += [shown(each["name"])]
        cells += [f"{each[name]:,}" for name in ("ready", "in_flight", "delayed")]
        cells += [size(each["octets"]), f"{each['consumers']:,}"]
        cells += [_a_second(_rate(each, name)) for name in ("in", "out")]
        cells += ["paused" if each["is_paused"] else ""]
        rows.append(cells)
    first = 2 if has_hosts else 1
    first_line, *others = table(rows, right=range(first, first + 7))
    yield first_line
    for text, each in zip(others, found, strict=True):
        # Dead letters, and messages without a consumer.
        is_odd = each["ready"] and (each["kind"] == "dlq" or not each["consumers"])
        yield style(text, "yellow") if is_odd else text


def _rate(destination: dict[str, Any], name: str) -> float | None:
    """Return the rate in messages per second; ``None`` if it is not measured, or not yet."""
    rates = destination["rates"]
    return None if rates is None else rates[name]


def _a_second(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:,.0f}/s" if rate >= 10 or not rate else f"{rate:.1f}/s"
