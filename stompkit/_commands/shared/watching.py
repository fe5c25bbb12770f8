"""Lists that a command prints once, or again and again with ``--watch``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from stompkit._commands.shared.broker_options import seconds

__all__ = ["add_watch_options", "watch"]

_WATCH_S: Final = 2.0


def add_watch_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--watch`` and ``--json``."""
    parser.add_argument(
        "--watch",
        type=seconds,
        nargs="?",
        const=_WATCH_S,
        metavar="SECONDS",
        help="refresh the list until interrupted (default interval: 2 seconds)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON; with --watch, one document per line"
    )


def watch(
    options: argparse.Namespace,
    document: Callable[[], dict[str, Any]],
    lines: Callable[[dict[str, Any]], Iterable[str]],
) -> int:
    """Print a document, as JSON or as lines; with ``--watch`` until interrupted."""
    while True:
        found = document()
        if options.json:
            print(json.dumps(found, indent=None if options.watch else 1))
        else:
            if options.watch and sys.stdout.isatty():
                print("\x1b[H\x1b[2J", end="")
            for line in lines(found):
                print(line)
        if not options.watch:
            return 0
        sys.stdout.flush()
        time.sleep(options.watch)
