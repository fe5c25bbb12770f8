"""The frame shared by the HTML pages, without scripts or external resources."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template

__all__ = ["chapter_anchor", "page"]

_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style></head><body class="$kind">
$buttons
<header><nav>$links</nav><p>show $labels</p></header>
<main>
$content
</main>
</body></html>
""")


def page(
    kind: str, title: str, links: Mapping[str, str], filters: Mapping[str, str], content: str
) -> bytes:
    """Return a page of a kind that the style sheet defines.

    ``links`` maps ids in the page to their names; ``filters`` maps the ids of filter buttons to
    their labels; the first button is selected. ``content`` is HTML.
    """
    text = _PAGE.substitute(
        title=escape(title),
        style=files("stompkit.conformance").joinpath("report.css").read_text("utf-8"),
        kind=kind,
        links="".join(
            f'<a href="#{escape(anchor)}">{escape(name)}</a>' for anchor, name in links.items()
        ),
        # The buttons are siblings of everything that they hide or show: the style sheet cannot
        # select ancestors, or only too slowly for a page of this size.
        buttons="".join(
            f'<input type="radio" name="show" id="{anchor}"{"" if number else " checked"}>'
            for number, anchor in enumerate(filters)
        ),
        labels="".join(
            f'<label for="{anchor}">{escape(name)}</label>' for anchor, name in filters.items()
        ),
        content=content,
    )
    return text.encode("utf-8", "backslashreplace")


def chapter_anchor(chapter: str) -> str:
    """Return the id of a chapter on a page; unlike ids of cases it has no slash."""
    return f"chapter-{chapter}".replace("/", "-")
