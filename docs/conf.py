"""The documentation as a site: ``make docs``, or ``sphinx-build -W docs report/docs``."""

from __future__ import annotations

import posixpath
import re
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Final

from docutils import nodes
from pygments.lexers.special import TextLexer  # type: ignore[import-untyped]  # Pygments'
from sphinx.application import Sphinx
from sphinx.util import logging

ROOT: Final = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import stompkit  # noqa: E402  # only now it is the one beside these pages
from docs import make_results  # noqa: E402

project = "stompkit"
author = "the stompkit authors"
version = release = stompkit.__version__
extensions = ["sphinx.ext.autodoc"]
root_doc = "index"
# Frames and shell commands must not be highlighted as Python.
highlight_language = "text"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
# Types are for readers only; some belong to Twisted or to no documented module.
nitpicky = False

html_theme = "furo"
html_title = f"stompkit {version}"
html_show_sourcelink = False
html_copy_source = False
#: The folder of reports that pages link to; the site has a table of them instead.
_RESULTS: Final = "../../conformance/results"

_SETUP: Final = ConfigParser()
_SETUP.read(ROOT / "setup.cfg", encoding="utf-8")
#: Address of the files of this version in the repository.
_FILES: Final = f"{_SETUP['metadata']['url']}/blob/v{version}"

_log: Final = logging.getLogger(__name__)
_PAGE: Final = re.compile(r"(?P<page>[\w./-]+)\.rst(?P<anchor>#.*)?")


def link_pages(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Redirect links to ``NAME.rst``, which are correct in the sources, to the pages."""
    for reference in doctree.findall(nodes.reference):
        target = str(reference.get("refuri", ""))
        if "://" in target or target.startswith(("#", "mailto:")):
            continue
        if target.rstrip("/") == _RESULTS:
            reference["refuri"] = "../" * docname.count("/") + "matrix.html"
            continue
        found = _PAGE.fullmatch(target)
        if found is None:
            continue
        page = posixpath.normpath(posixpath.join(posixpath.dirname(docname), found["page"]))
        # Files beside docs, such as the change log, are not in the site.
        if page.startswith("../") and (ROOT / "docs" / f"{page}.rst").is_file():
            path = page.removeprefix("../")
            reference["refuri"] = f"{_FILES}/{path}.rst{found['anchor'] or ''}"
            continue
        if page not in app.env.found_docs:
            _log.warning("%s links to %s, which is no page", docname, target, location=reference)
            continue
        reference["refuri"] = app.builder.get_relative_uri(docname, page) + (found["anchor"] or "")


def without_contents(app: Sphinx, doctree: nodes.document) -> None:
    """Remove a page's own table of contents: the theme has one beside each page."""
    for topic in list(doctree.findall(nodes.topic)):
        if "contents" in topic["classes"]:
            topic.parent.remove(topic)
            # Headings link back to it.
            for title in doctree.findall(nodes.title):
                title.attributes.pop("refid", None)


def write_matrix(app: Sphinx, error: Exception | None) -> None:
    """Add the table of all cases of the conformance suite on all brokers."""
    if error is None and app.builder.format == "html":
        (Path(app.outdir) / "matrix.html").write_bytes(make_results.matrix())


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extensions for these pages."""
    app.add_lexer("stomp", TextLexer)
    app.connect("doctree-read", without_contents)
    app.connect("doctree-resolved", link_pages)
    app.connect("build-finished", write_matrix)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
