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
The output is a valid configuration file with a description of each setting. Settings that FILE does
not set are commented out and show their defaults. Passcodes in FILE are printed as well.

  stompkit show-config > stompkit.toml             create a configuration file
  stompkit show-config FILE | grep -v '^#'         only the settings that FILE changes

exit status: 0 success; 1 the file has errors, which are printed
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit show-config",
        description="Print all broker settings with their descriptions.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help="a configuration file; without it, all defaults are printed",
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
