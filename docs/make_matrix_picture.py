"""Take the picture of the brokers' matrix in the README: ``pictures/conformance-matrix.png``.

It shows the beginning of ``conformance/results/matrix.html``, as ``docs/make_results.py`` makes it.
Run it at the root of the checkout after that: ``python -m docs.make_matrix_picture``. The picture
contains the totals as a comment, with which ``--check`` compares those of the page of results.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from docs.png import comment_of, smaller
from tests.browser import Chromium, chromium

__all__ = ["main", "totals"]

_ROOT: Final = Path(__file__).parents[1]
_MATRIX: Final = _ROOT / "conformance" / "results" / "matrix.html"
_PICTURE: Final = _ROOT / "docs" / "pictures" / "conformance-matrix.png"
_PAGE: Final = _ROOT / "docs" / "reference" / "conformance-results.rst"
_WIDTH, _HEIGHT = 1500, 1000


def totals() -> str:
    """Return the totals of each broker, as the page of results has them."""
    _, _, table = _PAGE.read_text(encoding="utf-8").partition(".. csv-table::\n")
    lines = table.split("\n\n", 2)[1].splitlines()
    return "\n".join(line.strip() for line in lines)


def main(arguments: list[str]) -> int:
    """Take the picture, or check it; return the exit status."""
    if arguments == ["--check"]:
        if comment_of(_PICTURE.read_bytes()) == totals():
            return 0
        print(f"{_PICTURE.name} is older than the results: run this without --check")
        return 1
    if not _MATRIX.exists():
        print(f"{_MATRIX} is missing: run python docs/make_results.py", file=sys.stderr)
        return 1
    program = chromium()
    if program is None:
        print("no Chromium: apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as profile, Chromium(program, Path(profile)) as browser:
        with browser.page():
            browser.open(_MATRIX, width=_WIDTH, height=_HEIGHT)
            data = smaller(browser.screenshot(), totals())
    _PICTURE.write_bytes(data)
    print(f"{_PICTURE.name}: {len(data) / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
