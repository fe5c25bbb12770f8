"""``stompkit peek``."""

from __future__ import annotations

import argparse
import base64
import sys
from typing import Any, Final

from stompkit._commands.shared.admin import Admin, add_admin_options, admin_parser, on_admin
from stompkit._common.arguments import positive
from stompkit._common.spelling import amount
from stompkit._common.style import Style
from stompkit._common.text import json_line, shown

__all__ = ["main", "parser"]

_EPILOG: Final = """\
The list includes delayed messages, and messages that were delivered but not acknowledged. Messages
stay in the queue.

  stompkit peek /queue/orders
  stompkit peek /dlq/orders --count 100 --json
  stompkit peek /queue/orders --json | stompkit send /queue/copy --jsonl

--json has the format of `stompkit receive --json`. Bodies above 1 MiB are truncated and marked. For
other brokers, use `stompkit receive --browse`.

{admin}
exit status: 0 success; 1 the broker refused the request or is unreachable; 2 wrong command line;
3 the queue has no message
"""

_NOTHING: Final = 3
_PAGE: Final = 100
#: Maximum size in bytes of a body that a broker returns.
_MOST_BODY: Final = 1024 * 1024
_SHOWN_BODY: Final = 2000


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = admin_parser(
        "peek", "Show messages of a queue of a stompkit broker without removing them.", _EPILOG
    )
    add = parser.add_argument
    add("destination", metavar="DESTINATION", help="the queue, such as /queue/orders")
    add(
        "--limit",
        "--count",
        dest="count",
        type=positive,
        default=10,
        metavar="N",
        help="show at most N messages (default: 10)",
    )
    add("--vhost", default="", metavar="NAME", help="virtual host")
    add("--json", action="store_true", help="print each message as a JSON object")
    add_admin_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Print messages without removing them."""
    options = parser().parse_args(arguments)
    return on_admin("peek", options, lambda admin: _peek(admin, options))


def _peek(admin: Admin, options: argparse.Namespace) -> int:
    style = Style(sys.stdout)
    left, after = options.count, None
    while left:
        page = admin.get(
            "/api/v1/messages",
            host=options.vhost or None,
            name=options.destination,
            after=after,
            limit=min(left, _PAGE),
            max_body_octets=_MOST_BODY if options.json else _SHOWN_BODY,
        )
        for each in page["messages"]:
            print(_line(options.destination, each) if options.json else _shown(each, style))
        left -= len(page["messages"])
        after = page["next"]
        if after is None or not page["messages"]:
            break
    return 0 if left < options.count else _NOTHING


def _headers(message: dict[str, Any]) -> dict[str, str]:
    """Return the headers; of repeated ones the first, as in STOMP."""
    return dict(reversed([(name, value) for name, value in message["headers"]]))


def _line(destination: str, message: dict[str, Any]) -> str:
    headers = _headers(message)
    document = {
        "destination": headers.get("destination", destination),
        "headers": {"message-id": message["id"], **headers},
        "state": message["state"],
        "deliveries": message["deliveries"],
    }
    kind = "body" if message["body"] is not None else "body_base64"
    document[kind] = message[kind]
    if message["is_truncated"]:
        document["is_truncated"] = True
    return json_line(document)


def _shown(message: dict[str, Any], style: Style) -> str:
    facts = [message["state"], amount(message["body_octets"], "byte")]
    if message["deliveries"]:
        facts.append(f"delivered {message['deliveries']} times")
    facts += [f"{name} {message[name]}" for name in ("due", "expires") if message[name]]
    lines = [style(f"{shown(str(message['id']))}: {', '.join(facts)}", "bold")]
    lines += [f"{style(shown(name), 'cyan')}:{shown(value)}" for name, value in message["headers"]]
    body = message["body"]
    if body is None:
        body = base64.b64decode(message["body_base64"]).hex(" ")
    if body:
        lines += ["", *(shown(line) for line in body.split("\n"))]
    if message["is_truncated"]:
        lines[-1] += style(" ...", "dim")
    return "\n".join([*lines, ""])
