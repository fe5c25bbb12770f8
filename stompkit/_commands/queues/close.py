"""``stompkit close``."""

from __future__ import annotations

import argparse
import json
from typing import Final

from stompkit._commands.shared.admin import (
    Admin,
    AdminError,
    add_admin_options,
    admin_parser,
    confirmed,
    on_admin,
)
from stompkit._commands.shared.listing import pages
from stompkit._common.spelling import amount
from stompkit._common.text import shown

__all__ = ["main", "parser"]

_EPILOG: Final = """\
  stompkit connections                                     list the connections with their ids
  stompkit close 7 --reason "maintenance at noon"

The client gets an ERROR with the reason. The broker delivers its unacknowledged messages again.
Most clients connect again at once; change the user's password or rights to prevent that.

{admin}
exit status: 0 success; 1 the broker refused the request or is unreachable, or the question was
answered with no; 2 wrong command line, or no terminal to ask on and no --yes
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = admin_parser("close", "Close a connection of a stompkit broker.", _EPILOG)
    add = parser.add_argument
    add("connection", metavar="ID", help="the id of the connection, as `connections` lists it")
    add("--reason", metavar="TEXT", help="reason that the client receives")
    add("--yes", action="store_true", help="do not ask for confirmation")
    add("--json", action="store_true", help="print the result as JSON")
    add_admin_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Close a connection."""
    options = parser().parse_args(arguments)
    return on_admin("close", options, lambda admin: _close(admin, options))


def _close(admin: Admin, options: argparse.Namespace) -> int:
    wanted = options.connection
    listed = pages(admin, "/api/v1/connections", "connections", contains=wanted)
    found = next((each for each in listed if each["id"] == wanted), None)
    if found is None:
        raise AdminError(f"there is no connection {shown(wanted)}", "no-such-connection")
    user = f" of {shown(found['user'])}" if found["user"] else ""
    what = amount(found["subscriptions"], "subscription")
    question = f"Close connection {shown(wanted)}{user} from {found['address']}, with {what}?"
    if not confirmed("close", question, yes=options.yes):
        return 1
    admin.post("/api/v1/close", connection=wanted, reason=options.reason)
    if options.json:
        print(json.dumps({"connection": wanted, "closed": True}))
    else:
        print(f"connection {shown(wanted)} closed")
    return 0
