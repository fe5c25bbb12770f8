"""Writes the generated pages of the manual, or checks that they are current."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

__all__ = ["write_pages"]


def write_pages(
    script: str,
    description: str | None,
    pages: Callable[[], Mapping[str, str]],
    arguments: Sequence[str] | None,
    further: Sequence[argparse.ArgumentParser] = (),
) -> int:
    """Write the pages of a script, by file name, or check them; return the exit status.

    ``further`` are parsers of options that the script has read itself.
    """
    parser = argparse.ArgumentParser(description=description, parents=further)
    parser.add_argument(
        "--check", action="store_true", help="do not write the files, only compare them"
    )
    parser.add_argument(
        "--into",
        type=Path,
        default=Path(__file__).parent / "reference",
        metavar="DIR",
        help="output directory (default: docs/reference)",
    )
    options = parser.parse_args(arguments)
    status = 0
    for name, text in pages().items():
        path: Path = options.into / name
        if not options.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path} is not current: run python docs/{script}", file=sys.stderr)
            status = 1
    return status
