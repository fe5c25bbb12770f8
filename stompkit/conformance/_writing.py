"""Writes the files that options name."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from stompkit.conformance.expectations import UsageError
from stompkit.conformance.report import write

__all__ = ["write_reports"]


def write_reports(options: argparse.Namespace, contents: Mapping[str, Callable[[], bytes]]) -> None:
    """Write each kind of report that was asked for, by the name of its option.

    Raises :class:`UsageError` where a file can't be written, though it seemed so at the start.
    """
    for name, content in contents.items():
        path = getattr(options, name)
        if path is not None:
            try:
                write(path, content())
            except OSError as error:
                raise UsageError(f"--{name}: can't write {path}: {error}") from None
            print(f"wrote {path}")
