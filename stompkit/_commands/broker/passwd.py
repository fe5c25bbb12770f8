"""``stompkit passwd``."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from stompkit._common.arguments import Parser
from stompkit._common.files import describe, write_atomically
from stompkit.server.operations import hash_passcode

__all__ = ["main", "parser"]

_EPILOG: Final = """\
On a terminal, the command asks for the passcode twice. Otherwise the passcode is the first line of
standard input. The file stores hashes of passcodes (scrypt). A running broker uses the changed file
from the next login on. A user whose passcode changes keeps the groups, unless others are given.

  stompkit passwd /etc/stompkit.users alice --group ops
  echo "$SECRET" | stompkit passwd /etc/stompkit.users robot
  stompkit passwd /etc/stompkit.users bob --remove
  stompkit serve --auth stompkit:/etc/stompkit.users

exit status: 0 success; 1 the file cannot be changed, or the passcode is not accepted
"""


class _RefusedError(Exception):
    """A change that is refused, with the reason."""


def main(arguments: list[str]) -> int:
    """Change a password file."""
    options = _options(arguments)
    try:
        _check_order(options)
        before = _lines(options.file)
        lines = _without(before, options.user)
        if options.remove:
            if len(lines) == len(before):
                raise _RefusedError(f"{options.file} has no user {options.user}")
        else:
            passcode = _prompted(options.user)
            groups = [] if options.no_group else options.group or _groups(before, options.user)
            known = ":".join([options.user, hash_passcode(passcode), ",".join(groups)])
            lines.append(known.removesuffix(":"))
        _write(options.file, lines)
    except _RefusedError as error:
        print(f"stompkit passwd: {error}", file=sys.stderr)
        return 1
    except (OSError, UnicodeDecodeError) as error:
        is_text = isinstance(error, UnicodeDecodeError)
        problem = f"{options.file}: not UTF-8" if is_text else describe(error)
        print(f"stompkit passwd: {problem}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit passwd",
        description="Add, change or remove a user in a password file.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="the password file; created if it is missing"
    )
    parser.add_argument("user", metavar="USER", help="the login name")
    groups = parser.add_mutually_exclusive_group()
    groups.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="NAME",
        help="group of the user; repeatable. Without it, a user keeps the groups",
    )
    groups.add_argument("--no-group", action="store_true", help="remove the user from all groups")
    parser.add_argument("--remove", action="store_true", help="remove the user")
    return parser


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser()
    options = made.parse_args(arguments)
    if not _is_word(options.user, ":") or options.user.startswith("#"):
        made.error("a user's name is printable, has no colon, and does not begin with # or a space")
    if not all(_is_word(each, ":,") for each in options.group):
        made.error("a group's name is printable and has neither colon nor comma")
    return options


def _check_order(options: argparse.Namespace) -> None:
    """Refuse a name that is the path of a file, with a password file that does not exist."""
    if not options.file.exists() and Path(options.user).is_file():
        raise _RefusedError(
            f"{options.user} is a file, and {options.file} does not exist: write FILE before USER,"
            f" as in stompkit passwd {options.user} {options.file}"
        )


def _is_word(text: str, forbidden: str) -> bool:
    is_clean = text.isprintable() and text == text.strip()
    return bool(text) and is_clean and not any(each in text for each in forbidden)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        # Before it asks for a passcode.
        if not path.parent.exists():
            parent = path.parent
            raise _RefusedError(
                f"the directory {parent} does not exist. Create it first: mkdir -p {parent}"
            ) from None
        path.parent.stat()  # raises OSError for a directory that cannot be read
        return []


def _without(lines: Iterable[str], user: str) -> list[str]:
    return [line for line in lines if line.strip().partition(":")[0] != user]


def _groups(lines: Iterable[str], user: str) -> list[str]:
    """Return the groups that a user has."""
    for line in lines:
        name, *rest = line.strip().split(":", 2)
        if name == user:
            return rest[1:]
    return []


def _prompted(user: str) -> str:
    if sys.stdin.isatty():
        passcode = getpass.getpass(f"Passcode of {user}: ")
        if getpass.getpass("The same again: ") != passcode:
            raise _RefusedError("the two were not the same; nothing was changed")
    else:
        passcode = sys.stdin.readline().rstrip("\r\n")
    if not passcode:
        raise _RefusedError("a passcode must not be empty")
    return passcode


def _write(path: Path, lines: Iterable[str]) -> None:
    """Replace the file atomically, without making it readable by others."""
    mode = 0o600
    with contextlib.suppress(FileNotFoundError):
        mode = path.stat().st_mode & 0o777
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode(), mode=mode)
