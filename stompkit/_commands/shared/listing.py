"""Commands that list what a broker has, through its admin interface."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from stompkit._commands.shared.admin import (
    Admin,
    AdminError,
    add_admin_options,
    on_admin,
    standby_text,
)
from stompkit._commands.shared.text import aligned
from stompkit._commands.shared.watching import add_watch_options, watch
from stompkit._common.arguments import positive
from stompkit._common.style import Style

__all__ = ["add_list_options", "list_all", "pages", "table"]

_PAGE: Final = 1000
#: Names of items, where they differ from those in JSON.
_NAMES: Final = {"durables": "durable subscriptions"}


def add_list_options(parser: argparse.ArgumentParser, items: str) -> None:
    """Add the options of all lists, after those of this one; *items* is what it lists."""
    parser.add_argument(
        "--limit", type=positive, metavar="N", help=f"list at most N {items} (default: all)"
    )
    add_watch_options(parser)
    add_admin_options(parser)


def list_all(
    command: str,
    options: argparse.Namespace,
    items: str,
    find: Callable[[Admin], Sequence[dict[str, Any]]],
    lines: Callable[[Sequence[dict[str, Any]]], Iterable[str]],
) -> int:
    """Print what ``find`` returns, as JSON under the name *items* or as lines."""

    def document(admin: Admin) -> dict[str, Any]:
        found = find(admin)
        if not options.watch:
            _refuse_standby(admin)
        return {"total": len(found), items: found[: options.limit]}

    def text(found: dict[str, Any]) -> Iterator[str]:
        total, shown = found["total"], found[items]
        if not shown:
            yield f"no {_NAMES.get(items, items)}"
            return
        yield from lines(shown)
        if total > len(shown):
            yield f"and {total - len(shown):,} more"

    return on_admin(command, options, lambda admin: watch(options, lambda: document(admin), text))


def _refuse_standby(admin: Admin) -> None:
    """Raise AdminError if the broker is not active: its store is not open, so it knows nothing."""
    active = admin.get("/api/v1/overview").get("stands_by_for")
    if active is not None:
        raise AdminError(
            f"the broker at {admin.label} is a standby: {standby_text(active)}; ask that one",
            "not-active",
        )


def pages(
    admin: Admin, path: str, items: str, /, **query: str | int | None
) -> Iterator[dict[str, Any]]:
    """Yield the items of all pages; one can come twice if others end between two pages."""
    offset = 0
    while True:
        page = admin.get(path, **query, offset=offset, limit=_PAGE)[items]
        yield from page
        offset += len(page)
        if len(page) < _PAGE:
            return


def table(rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    """Return the lines of a table; the first row is its head. Columns in *right* are numbers."""
    head, *lines = aligned(rows, right)
    return [Style(sys.stdout)(head, "bold"), *lines]
