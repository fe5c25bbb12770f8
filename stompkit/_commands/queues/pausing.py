"""Pause and resume queues: what the two commands share."""

from __future__ import annotations

import argparse
import json
from typing import Final

from stompkit._commands.shared.admin import Admin, add_admin_options, admin_parser, on_admin
from stompkit._common.text import shown

__all__ = ["pausing", "pausing_parser"]

_EPILOG: Final = """\
  stompkit pause /queue/orders
  stompkit resume /queue/orders
  stompkit queues --json | jq '.destinations[] | select(.is_paused).name'

A paused queue accepts messages and delivers none. The pause ends with `resume`, and when the broker
ends.

{admin}
exit status: 0 success; 1 the broker refused the request or is unreachable; 2 wrong command line
"""


def pausing_parser(command: str, description: str) -> argparse.ArgumentParser:
    """Return the parser of ``pause`` or ``resume``."""
    parser = admin_parser(command, description, _EPILOG)
    add = parser.add_argument
    add("destinations", nargs="+", metavar="DESTINATION", help="the queue, such as /queue/orders")
    add("--vhost", default="", metavar="NAME", help="virtual host")
    add("--json", action="store_true", help="print the result as JSON")
    add_admin_options(parser)
    return parser


def pausing(command: str, options: argparse.Namespace) -> int:
    """Pause or resume queues."""

    def work(admin: Admin) -> int:
        for name in options.destinations:
            answer = admin.post(f"/api/v1/{command}", host=options.vhost, name=name)
            if options.json:
                print(json.dumps({"name": name, "is_paused": answer["is_paused"]}))
            else:
                print(f"{shown(name)} {'paused' if answer['is_paused'] else 'resumed'}")
        return 0

    return on_admin(command, options, work)
