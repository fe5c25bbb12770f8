"""``stompkit hand-over``."""

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
from stompkit._common.text import shown

__all__ = ["main", "parser"]

_EPILOG: Final = """\
  stompkit durables                                        list durable subscriptions
  stompkit hand-over /durable/office/news bob
  stompkit hand-over /durable/office/news --yes            to its next user

A durable subscription belongs to the first user with a name who uses it. Use this command if that
user has left or has a new name. The messages that the subscription has collected stay in it. It
must not be in use: close its connection first.

{admin}
exit status: 0 success; 1 the broker refused the request or is unreachable, or the question was
answered with no; 2 wrong command line, or no terminal to ask on and no --yes
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = admin_parser(
        "hand-over", "Give a durable subscription of a stompkit broker to another user.", _EPILOG
    )
    add = parser.add_argument
    add("durable", metavar="DURABLE", help="its name, as `durables` lists it")
    add("user", nargs="?", metavar="USER", help="the new owner (default: its next user)")
    add("--vhost", default="", metavar="NAME", help="virtual host")
    add("--yes", action="store_true", help="do not ask for confirmation")
    add("--json", action="store_true", help="print the result as JSON")
    add_admin_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Give a durable subscription to another user."""
    options = parser().parse_args(arguments)
    return on_admin("hand-over", options, lambda admin: _hand_over(admin, options))


def _hand_over(admin: Admin, options: argparse.Namespace) -> int:
    name, host, user = options.durable, options.vhost, options.user
    all_of_them = admin.get("/api/v1/durables")["durables"]
    # The broker lists its first host, which is the default, before others.
    found = next(
        (each for each in all_of_them if each["name"] == name and host in ("", each["host"])), None
    )
    if found is None:
        raise AdminError(f"there is no durable subscription {shown(name)}", "no-such-durable")
    before = f" of {shown(found['owner'])}" if found["owner"] else ""
    to = shown(user) if user else "its next user"
    if not confirmed("hand-over", f"Give {shown(name)}{before} to {to}?", yes=options.yes):
        return 1
    # JSON null, which `post` would leave out, is the next user.
    answer = admin.send("/api/v1/durables/hand-over", {"host": host, "name": name, "user": user})
    if options.json:
        print(json.dumps({"name": name, "owner": answer["owner"]}))
    else:
        print(f"{shown(name)} belongs to {to} now")
    return 0
