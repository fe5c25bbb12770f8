"""``stompkit check-config``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from stompkit._commands.shared.documents import checked
from stompkit._commands.shared.text import json_line
from stompkit._common.arguments import Parser
from stompkit.server.operations import SettingsError, read_settings

__all__ = ["main", "parser"]

_EPILOG: Final = """\
All mistakes are told, each in a line with its place: unknown keys, wrong values, and settings that
don't go together. Files that the settings name are looked into as well, as the user who asks.

  stompkit check-config /etc/stompkit.toml && systemctl reload stompkit
  stompkit check-config --json /etc/stompkit.toml | jq -r '.problems[]'

exit status: 0 the broker would start with it; 1 it would not
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit check-config",
        description="Say what is wrong with a broker's file of settings.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the file, TOML")
    parser.add_argument(
        "--json", action="store_true", help="print what was found as JSON, whatever it is"
    )
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
