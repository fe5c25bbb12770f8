"""``stompkit delete``."""

from __future__ import annotations

import argparse
import json
from typing import Final

from stompkit._commands.shared.admin import (
    Admin,
    add_admin_options,
    admin_parser,
    confirmed,
    on_admin,
)
from stompkit._common.spelling import amount
from stompkit._common.text import shown

__all__ = ["main", "parser"]

_EPILOG: Final = """\
  stompkit delete /queue/old
  stompkit delete /durable/office/news --yes              a durable subscription

A destination with consumers is not deleted. The next client that names it creates it again, if it
has the right to.

{admin}
exit status: 0 success; 1 the broker refused the request or is unreachable, or the question was
answered with no; 2 wrong command line, or no terminal to ask on and no --yes
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = admin_parser(
        "delete", "Delete an unused destination of a stompkit broker, with its messages.", _EPILOG
    )
    add = parser.add_argument
    add("destination", metavar="DESTINATION", help="the destination, such as /queue/old")
    add("--vhost", default="", metavar="NAME", help="virtual host")
    add("--yes", action="store_true", help="do not ask for confirmation")
    add("--json", action="store_true", help="print the result as JSON")
    add_admin_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Delete a destination."""
    options = parser().parse_args(arguments)
    return on_admin("delete", options, lambda admin: _delete(admin, options))


def _delete(admin: Admin, options: argparse.Namespace) -> int:
    name, host = options.destination, options.vhost
    found = admin.get("/api/v1/destination", host=host or None, name=name)
    what = amount(found["ready"] + found["delayed"], "message")
    if not confirmed("delete", f"Delete {shown(name)} and its {what}?", yes=options.yes):
        return 1
    path = "durables/delete" if found["kind"] == "durable" else "delete"
    answer = admin.post(f"/api/v1/{path}", host=host, name=name)
    if options.json:
        print(json.dumps({"name": name, "deleted": answer["deleted"]}))
    else:
        print(f"{shown(name)} deleted")
    return 0
