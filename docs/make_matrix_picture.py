"""Take the picture of the brokers' matrix in the README: ``pictures/conformance-matrix.png``.

It shows the beginning of ``conformance/results/matrix.html``, as ``docs/make_results.py`` makes it.
Run it at the root of the checkout after that: ``python -m docs.make_matrix_picture``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from docs.png import smaller
from tests.browser import Chromium, chromium

__all__ = ["main"]

_ROOT: Final = Path(__file__).parents[1]
_MATRIX: Final = _ROOT / "conformance" / "results" / "matrix.html"
_PICTURE: Final = _ROOT / "docs" / "pictures" / "conformance-matrix.png"
_WIDTH, _HEIGHT = 1500, 1000


def main() -> int:
    """Take the picture; return the exit status."""
    program = chromium()
    if program is None:
        print("no Chromium: apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as profile, Chromium(program, Path(profile)) as browser:
        browser.open(_MATRIX, width=_WIDTH, height=_HEIGHT)
        data = smaller(browser.screenshot())
    _PICTURE.write_bytes(data)
    print(f"{_PICTURE.name}: {len(data) / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
