"""``stompkit show-config``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from stompkit._common.arguments import Parser
from stompkit.server.operations import Settings, SettingsError, read_settings, settings_text

__all__ = ["main", "parser"]

_EPILOG: Final = """\
What is printed is a file of settings itself: what FILE sets, and all the rest commented out with
its default, each with its meaning. Passcodes that are in FILE are printed as well.

  stompkit show-config > stompkit.toml             a file to begin with
  stompkit show-config FILE | grep -v '^#'         what FILE sets that is not the default

exit status: 0; 1 for a file with mistakes, which are told
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit show-config",
        description="Print all settings of a broker, each with its meaning.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", type=Path, nargs="?", metavar="FILE", help="a file of settings; without: defaults"
    )
    return parser


def main(arguments: list[str]) -> int:
    """Print the settings."""
    options = parser().parse_args(arguments)
    try:
        settings = Settings() if options.file is None else read_settings(options.file)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 1
    print(settings_text(settings), end="")
    return 0
