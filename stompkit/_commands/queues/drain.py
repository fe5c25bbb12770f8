"""``stompkit drain``."""

from __future__ import annotations

import argparse
import json
import sys
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
from stompkit._commands.shared.progress import Progress
from stompkit._common.spelling import amount
from stompkit._common.text import shown

__all__ = ["main", "parser"]

_EPILOG: Final = """\
  stompkit drain /queue/orders && stompkit delete /queue/orders --yes
  stompkit drain /queue/orders /queue/invoices --timeout 60

It waits until the consumers have acknowledged all messages, delayed ones included. Stop the senders
first. `stompkit purge` deletes messages instead, and `stompkit move` moves them.

{admin}
exit status: 0 the queues are empty; 1 they are not after --timeout, the broker refused the request
or is unreachable; 2 wrong command line; 130 interrupted
"""
_POLL_S: Final = 0.5


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = admin_parser(
        "drain", "Wait until the consumers have emptied queues of a stompkit broker.", _EPILOG
    )
    add = parser.add_argument
    add("destinations", nargs="+", metavar="DESTINATION", help="the queue, such as /queue/orders")
    add("--vhost", default="", metavar="NAME", help="virtual host")
    add(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="fail after this many seconds (default: wait without a limit)",
    )
    add("--json", action="store_true", help="print the result as JSON")
    add("--quiet", action="store_true", help="show no progress")
    add_admin_options(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Wait until queues are empty."""
    options = parser().parse_args(arguments)
    return on_admin("drain", options, lambda admin: _drain(admin, options))


def _drain(admin: Admin, options: argparse.Namespace) -> int:
    began = time.monotonic()
    if options.timeout is not None:
        admin.end_within(options.timeout)
    found = _look(admin, options)
    at_first = sum(map(_left, found.values()))
    warned: set[str] = set()
    progress = Progress("consumed", at_first, quiet=options.quiet)
    while any(map(_left, found.values())):
        if options.timeout is not None and time.monotonic() - began > options.timeout:
            break
        for name, each in found.items():
            reason = _hindrance(each)
            if reason and name not in warned:
                warned.add(name)
                print(f"stompkit drain: warning: {shown(name)} {reason}", file=sys.stderr)
        time.sleep(_POLL_S)
        found = _look(admin, options)
        progress(max(0, at_first - sum(map(_left, found.values()))))
    progress.end()
    return _report(found, time.monotonic() - began, as_json=options.json)


def _look(admin: Admin, options: argparse.Namespace) -> dict[str, dict[str, Any] | None]:
    """Return the queues by name; the broker removes an empty one, which is None."""
    found: dict[str, dict[str, Any] | None] = {}
    for name in options.destinations:
        try:
            found[name] = admin.get("/api/v1/destination", host=options.vhost or None, name=name)
        except AdminError as error:
            if error.code != "no-such-destination":
                raise
            found[name] = None
    return found


def _left(queue: dict[str, Any] | None) -> int:
    """Return the number of messages of a queue."""
    return 0 if queue is None else queue["ready"] + queue["in_flight"] + queue["delayed"]


def _hindrance(queue: dict[str, Any] | None) -> str:
    """Return why nobody empties a queue, or an empty text."""
    if queue is None or not _left(queue):
        return ""
    if queue["is_paused"]:
        return "is paused; `stompkit resume` ends that"
    return "" if queue["consumers"] else "has no consumers"


def _report(found: dict[str, dict[str, Any] | None], took_s: float, *, as_json: bool) -> int:
    """Print the result; return the exit status."""
    left = {name: _left(each) for name, each in found.items()}
    if as_json:
        print(json.dumps({"left": left, "seconds": round(took_s, 3)}))
    for name, count in left.items():
        if count:
            text = f"{shown(name)} still has {amount(count, 'message')} after {took_s:.0f} seconds"
            print(f"stompkit drain: {text}", file=sys.stderr)
        elif not as_json:
            print(f"{shown(name)} is empty")
    return 1 if any(left.values()) else 0
