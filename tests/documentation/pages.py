"""The pages of the documentation as trees of nodes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from docutils import nodes
from docutils.core import publish_doctree

__all__ = ["ROOT", "parsed", "rows", "section", "tree"]

ROOT = Path(__file__).parents[2]


@cache
def parsed(page: str) -> tuple[nodes.document, str]:
    """Return a page as a tree of nodes, and what is wrong with it."""
    path = ROOT / page
    complaints = io.StringIO()
    settings = {
        "warning_stream": complaints,
        "report_level": 2,
        "syntax_highlight": "none",
        # Each page has a separate title, and its sections have the same ids as on the web page.
        "doctitle_xform": False,
    }
    text = path.read_text(encoding="utf-8")
    document = publish_doctree(text, source_path=str(path), settings_overrides=settings)
    assert isinstance(document, nodes.document)
    return document, complaints.getvalue()


def tree(page: str) -> nodes.document:
    """Return a page as a tree of nodes."""
    return parsed(page)[0]


def section(page: str, name: str) -> nodes.section:
    """Return the section of a page with an id."""
    found: list[nodes.section] = list(tree(page).findall(nodes.section))
    return next(each for each in found if name in each["ids"])


def rows(table: nodes.table) -> Iterator[list[nodes.entry]]:
    """Yield the rows of a table, without its head."""
    for body in table.findall(nodes.tbody):
        for row in body.findall(nodes.row):
            yield list(row.findall(nodes.entry))
