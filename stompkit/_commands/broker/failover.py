"""``stompkit failover``."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any, Final

from stompkit._commands.shared.admin import (
    Admin,
    AdminError,
    add_admin_options,
    admin_parser,
    on_admin,
)
from stompkit._commands.shared.broker_options import seconds
from stompkit._commands.shared.lease import lease_lines
from stompkit._common.text import shown

__all__ = ["main", "parser"]

#: Interval in seconds between two looks at the lease.
_LOOK_S: Final = 0.1

_EPILOG: Final = """\
  stompkit failover --show                     which broker is active, and which are passive
  stompkit failover --to mq-2                  hand over to mq-2, and wait until it is active
  stompkit failover                            hand over to any passive broker

It is for brokers that share a store by a lease: `lease = "database"` in [high_availability]. Any of
these brokers takes the request. The active broker ends its clients' sessions with an ERROR
`not-active`, stores everything, and releases the lease for the other one. Clients have to connect
again.

{admin}
exit status: 0 success; 1 the broker refused the request or is unreachable, or no other broker
became active in time; 2 wrong command line
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = admin_parser("failover", "Make another broker of a shared store active.", _EPILOG)
    add = parser.add_argument
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--to", metavar="NAME", help="the broker that is to become active")
    group.add_argument("--show", action="store_true", help="change nothing; print the brokers")
    add(
        "--timeout",
        type=seconds,
        default=30.0,
        metavar="SECONDS",
        help="time to wait for the answer and the other broker (default: %(default)g)",
    )
    add("--json", action="store_true", help="print the result as JSON")
    add_admin_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Hand over, or show the lease."""
    options = parser().parse_args(arguments)
    return on_admin("failover", options, lambda admin: _work(admin, options))


def _work(admin: Admin, options: argparse.Namespace) -> int:
    admin.end_within(options.timeout)
    if options.show:
        lease = admin.get("/api/v1/lease")
    else:
        asked = admin.post("/api/v1/failover", to=options.to)
        lease = _taken_over(admin, asked, options.timeout)
    if options.json:
        print(json.dumps(lease))
    elif options.show:
        print("\n".join(lease_lines(lease)))
    else:
        print(f"{shown(lease['owner'])} has the lease, epoch {lease['epoch']}")
    return 0


def _taken_over(admin: Admin, asked: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Wait until the lease has a new owner; raises AdminError if it has none in time."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        lease = admin.get("/api/v1/lease")
        if lease["owner"] is not None and lease["epoch"] > asked["epoch"]:
            if lease["owner"] != asked["successor"]:
                raise AdminError(
                    f"{shown(lease['owner'])} has taken over, instead of"
                    f" {shown(asked['successor'])}"
                )
            return lease
        if time.monotonic() >= deadline_s:
            raise AdminError(
                f"{shown(asked['successor'])} has not taken over within {timeout_s:g} seconds: see"
                " `stompkit failover --show`, and its log"
            )
        time.sleep(_LOOK_S)
