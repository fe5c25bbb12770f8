"""Writing of the report files."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from stompkit.conformance.report.expectations import UsageError
from stompkit.conformance.report.report import write

__all__ = ["write_reports"]


def write_reports(options: argparse.Namespace, contents: Mapping[str, Callable[[], bytes]]) -> None:
    """Write each requested kind of report, by the name of its option.

    Raises :class:`UsageError` if a file cannot be written, though the check at the start succeeded.
    """
    for name, content in contents.items():
        path = getattr(options, name)
        if path is not None:
            try:
                write(path, content())
            except OSError as error:
                raise UsageError(f"--{name}: cannot write {path}: {error}") from None
            print(f"wrote {path}")
