"""Figures, bounds and progress: the output of the programs that measure a broker."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from stompkit import __version__, is_compiled

__all__ = [
    "Bound",
    "Figure",
    "broken",
    "heading",
    "make_parser",
    "positive",
    "progress",
    "report",
    "unusable",
]

_WIDTH: Final = 79


class Figure(NamedTuple):
    """A measured value."""

    name: str
    """Its key in the JSON, with the unit."""
    title: str
    """Its title for readers, with the unit."""
    value: float
    form: str = ",.0f"
    """Its format specification."""


class Bound(NamedTuple):
    """The maximum of a figure."""

    figure: Figure
    limit: float

    @property
    def holds(self) -> bool:
        """True if the figure is within the bound."""
        return self.figure.value <= self.limit

    def sentence(self) -> str:
        """Return the bound in words, and whether it holds."""
        figure, limit = self.figure, self.limit
        verdict = "holds" if self.holds else "BROKEN"
        return f"{verdict}: {figure.title}: {figure.value:{figure.form}}, at most {limit:g}"


def make_parser(program: str, text: str) -> argparse.ArgumentParser:
    """Return a parser with the common options of all programs."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{program}", description=text)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    return parser


def positive(text: str) -> int:
    """Read a positive whole number from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def progress(text: str = "") -> None:
    """Show the current step on a terminal, in a line that the next call overwrites."""
    if sys.stderr.isatty():
        end = "" if text else "\r"
        print(f"\r{text[:_WIDTH]:<{_WIDTH}}", end=end, file=sys.stderr, flush=True)


def unusable(reason: str) -> SystemExit:
    """Return the exception that ends a program that cannot measure here: exit status 2."""
    progress()
    print(reason, file=sys.stderr)
    return SystemExit(2)


def broken(reason: str) -> SystemExit:
    """Return the exception that ends a program whose broker failed: exit status 1."""
    progress()
    return SystemExit(f"BROKEN: {reason}")


def heading() -> str:
    """Return a description of the software and the machine."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    how = "compiled" if is_compiled() else "not compiled"
    return f"stompkit {__version__}, {how}, {python}, {os.cpu_count()} cores"


def report(
    parser: argparse.ArgumentParser,
    path: Path | None,
    figures: list[Figure],
    bounds: list[Bound],
    **more: object,
) -> int:
    """Print everything and write it to ``path``, with ``more``; return the exit status."""
    progress()
    print(f"{heading()}\n")
    width = max(len(figure.title) for figure in figures)
    for figure in figures:
        print(f"{figure.title:<{width}}  {figure.value:>12{figure.form}}")
    print()
    for bound in bounds:
        print(bound.sentence())
    made: dict[str, Any] = {
        "program": parser.prog,
        "arguments": sys.argv[1:],
        "stompkit": __version__,
        "compiled": is_compiled(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "figures": {figure.name: figure.value for figure in figures},
        "bounds": [
            {"figure": bound.figure.name, "at_most": bound.limit, "holds": bound.holds}
            for bound in bounds
        ],
        **more,
    }
    if path is not None:
        path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return 0 if all(bound.holds for bound in bounds) else 1
