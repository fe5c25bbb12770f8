"""``stompkit check-config``."""

from __future__ import annotations

import argparse
import os
import pwd
import sys
from pathlib import Path
from typing import Final

from stompkit._commands.shared.documents import checked
from stompkit._common.arguments import Parser
from stompkit._common.text import json_line
from stompkit.server.operations import SettingsError, check_start, read_settings

__all__ = ["main", "parser"]

_EPILOG: Final = """\
Each error is printed on one line with its location: unknown keys, invalid values, and settings that
exclude each other. Then the command tries what the start would do, and changes nothing: it binds
the ports, writes into the directories, connects to the database, and looks for the packages. Start
it as the user of the broker, or as root with --user.

A port or a data directory in use is a warning, since the running broker may use it. Other warnings
are files with passwords, tokens or keys that every user of the machine can read, endpoints that are
open to other machines without a login, a [store] without path and url, and rights of nobody.

  stompkit check-config /etc/stompkit.toml && systemctl reload stompkit
  sudo stompkit check-config --user stompkit --strict /etc/stompkit.toml
  stompkit check-config --json /etc/stompkit.toml | jq -r '.problems[]'

exit status: 0 the broker would start; 1 it would not, or with --strict there are warnings; 2 wrong
command line
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
    add = parser.add_argument
    add("--user", metavar="NAME", help="check as this user; requires root")
    add("--strict", action="store_true", help="treat warnings as errors")
    add("--json", action="store_true", help="print the result as JSON")
    return parser


def main(arguments: list[str]) -> int:
    """Check a configuration file."""
    made = parser()
    options = made.parse_args(arguments)
    if options.user is not None:
        # The user may not be able to read the packages, which are loaded on first use.
        _check(options.file)
        try:
            _become(options.user)
        except KeyError:
            made.error(f"--user: there is no user {options.user!r}")
        except PermissionError:
            made.error("--user: only root can check as another user")
    problems, warnings = _check(options.file)
    is_ok = not problems and not (options.strict and warnings)
    if options.json:
        document = {**checked(options.file, problems), "is_ok": is_ok, "warnings": warnings}
        print(json_line(document))
    else:
        for text in (*problems, *(f"warning: {each}" for each in warnings)):
            print(text, file=sys.stderr)
        if is_ok:
            print(f"{options.file}: OK")
    return 0 if is_ok else 1


def _check(file: Path) -> tuple[list[str], list[str]]:
    """Return the problems and the warnings of a file."""
    try:
        settings = read_settings(file)
    except SettingsError as error:
        return error.problems, []
    report = check_start(settings, file)
    return [f"{file}: {each}" for each in report.problems], [
        f"{file}: {each}" for each in report.warnings
    ]


def _become(name: str) -> None:
    """Change to a user for good; raises KeyError, or PermissionError unless this is root."""
    user = pwd.getpwnam(name)
    if user.pw_uid == os.geteuid():
        return
    os.initgroups(name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
