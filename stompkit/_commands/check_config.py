"""``stompkit check-config``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from stompkit.server.operations import SettingsError, read_settings

__all__ = ["main", "parser"]

_EPILOG: Final = """\
All mistakes are told, each in a line with its place: unknown keys, wrong values, and settings that
don't go together. Files that the settings name are looked into as well, as the user who asks.

  stompkit check-config /etc/stompkit.toml && systemctl reload stompkit

exit status: 0 the broker would start with it; 1 it would not
"""


def parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="stompkit check-config",
        description="Say what is wrong with a broker's file of settings.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the file, TOML")
    return parser


def main(arguments: list[str]) -> int:
    """Check a file."""
    options = parser().parse_args(arguments)
    try:
        read_settings(options.file)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{options.file}: OK")
    return 0
