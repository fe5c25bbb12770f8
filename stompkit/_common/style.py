"""Standard streams: colours in a terminal, and texts that are written as a whole."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, Final, TextIO

__all__ = ["Style", "discard_output", "prepare_streams", "whole"]

_CODES: Final = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


class Style:
    """Colours, if a stream is a terminal that supports them."""

    def __init__(self, stream: TextIO, choice: str = "auto") -> None:
        """Inspect the stream; ``choice`` is ``auto``, ``always`` or ``never``.

        With ``auto``, a non-empty environment variable NO_COLOR disables colours.
        """
        is_wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        is_auto = choice == "auto"
        #: True if colours are enabled.
        self.is_on: Final = (is_wanted and stream.isatty()) if is_auto else choice == "always"

    def __call__(self, text: str, *names: str) -> str:
        """Return a text in colours, or unchanged."""
        if not self.is_on or not names or not text:
            return text
        codes = ";".join(_CODES[name] for name in names)
        return f"\x1b[{codes}m{text}\x1b[0m"


def prepare_streams() -> None:
    """Make stdout and stderr write texts whole, and escape what the terminal cannot show."""
    sys.stdout, sys.stderr = whole(sys.stdout), whole(sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Discard what stdout could not write, which the interpreter would try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def whole(stream: TextIO) -> TextIO:
    """Return a stream that writes all of a text at once, or raises OSError.

    A standard stream is not buffered if Python is started so, as with PYTHONUNBUFFERED. If the disk
    has room for a part of a text only, Python then drops the rest without an error.
    """
    if not isinstance(getattr(stream, "buffer", None), io.RawIOBase):
        return stream
    raw = io.FileIO(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        _Whole(raw), encoding=stream.encoding, errors=stream.errors, write_through=True
    )


class _Whole(io.BufferedWriter):
    """Passes each write on at once; what was not taken is tried again with the next one."""

    def write(self, data: Any, /) -> int:
        """Write all, or raise OSError."""
        count = super().write(data)
        self.flush()
        return count
