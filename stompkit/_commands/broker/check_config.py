"""``stompkit check-config``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from stompkit._commands.shared.documents import checked
from stompkit._common.arguments import Parser
from stompkit._common.text import json_line
from stompkit.server.operations import SettingsError, read_settings

__all__ = ["main", "parser"]

_EPILOG: Final = """\
Each error is printed on one line with its location: unknown keys, invalid values, and settings that
exclude each other. Files that the settings name are read as well, with the permissions of the
current user.

  stompkit check-config /etc/stompkit.toml && systemctl reload stompkit
  stompkit check-config --json /etc/stompkit.toml | jq -r '.problems[]'

exit status: 0 the configuration is valid; 1 the broker would not start with it
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit check-config",
        description="Check a broker's configuration file.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the configuration file, TOML")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def main(arguments: list[str]) -> int:
    """Check a configuration file."""
    options = parser().parse_args(arguments)
    problems = []
    try:
        read_settings(options.file)
    except SettingsError as error:
        problems = error.problems
    if options.json:
        print(json_line(checked(options.file, problems)))
    elif problems:
        print("\n".join(problems), file=sys.stderr)
    else:
        print(f"{options.file}: OK")
    return 1 if problems else 0
