"""``stompkit status``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any, Final

from stompkit._commands.shared.admin import (
    Admin,
    add_admin_options,
    admin_parser,
    on_admin,
    standby_text,
)
from stompkit._commands.shared.lease import lease_lines
from stompkit._commands.shared.text import duration, size
from stompkit._common.spelling import amount
from stompkit._common.text import shown

__all__ = ["main", "parser"]

_EPILOG: Final = """\
  stompkit status --admin localhost:15613
  stompkit status --json | jq .store

It prints version and uptime, clients, messages, rates, the store, memory, and, for brokers that
share a store by a lease, the role and the epoch of each. `stompkit queues` lists the destinations,
and `stompkit connections` the clients.

{admin}
exit status: 0 success; 1 the broker refused the request or is unreachable; 2 wrong command line
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = admin_parser("status", "Show the state of a stompkit broker at a glance.", _EPILOG)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_admin_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Show the state."""
    options = parser().parse_args(arguments)
    return on_admin("status", options, lambda admin: _work(admin, options))


def _work(admin: Admin, options: argparse.Namespace) -> int:
    found = admin.get("/api/v1/overview")
    print(json.dumps(found) if options.json else "\n".join(_lines(found)))
    return 0


def _lines(found: dict[str, Any]) -> Iterator[str]:
    compiled = "compiled" if found["is_compiled"] else "not compiled"
    uptime = duration(found["uptime_s"])
    yield f"stompkit {shown(found['version'])} ({compiled}), process {found['pid']}, up {uptime}"
    lease, rates, store = found["lease"], found["rates"], found["store"]
    # Earlier versions do not report it.
    is_standby = found.get("stands_by_for") is not None
    if lease is not None:
        role = "active" if lease["is_active"] else "passive"
        yield f"role         {role}, as {shown(lease['name'])}"
        yield from (f"             {line}" for line in lease_lines(lease))
    elif is_standby:
        yield f"role         standby: {standby_text(found['stands_by_for'])}"
    clients = amount(found["connections"], "connection")
    yield f"clients      {clients}, {amount(found['subscriptions'], 'subscription')}"
    if is_standby:
        yield "messages     unknown here: ask the active broker"
        return
    yield (
        f"messages     {found['ready']:,} ready, {found['in_flight']:,} in flight,"
        f" {found['delayed']:,} delayed, in {amount(found['destinations'], 'destination')}"
    )
    yield (
        f"rates        {rates['received']:,.1f}/s received, {rates['delivered']:,.1f}/s delivered,"
        f" {rates['settled']:,.1f}/s settled"
    )
    disk = "" if store["octets"] is None else f", {size(store['octets'])}"
    kind = "in memory" if store["kind"] == "none" else store["kind"]
    yield f"store        {kind}{disk}"
    if store["failure"] is not None:
        yield f"             warning: it has failed: {shown(store['failure'])}"
    if found["memory_octets"] is not None:
        yield f"process      {size(found['memory_octets'])} of memory"
