"""``stompkit store``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from stompkit._commands.shared.documents import checked
from stompkit._common.arguments import Parser, Subcommands
from stompkit._common.files import describe, replacing
from stompkit._common.secrets import is_reference
from stompkit._common.spelling import amount
from stompkit._common.text import json_line
from stompkit.server.operations import (
    DirectoryLock,
    MessageStore,
    StoreError,
    StoreSettings,
    backup,
    check_store,
    compact,
    export_store,
    has_lmdb,
    import_store,
    make_store,
)

__all__ = ["main", "parser"]

_EPILOG: Final = """\
STORE is the broker's data directory (--data, or `path` in the configuration file), or the URL of
its SQL database (`url`). Backup and check work while the broker runs. Stop it before the others.

  stompkit store backup /var/lib/stompkit/messages /backup/monday   a data directory
  stompkit store check /var/lib/stompkit/messages
  stompkit store compact /var/lib/stompkit/messages   the only way to make the file smaller
  stompkit store export /var/lib/stompkit/messages backup.jsonl
  stompkit store import backup.jsonl postgresql://stompkit@db/stompkit
  stompkit store export /var/lib/stompkit/messages - | gzip > backup.jsonl.gz

An export has one JSON object per line. Every kind of store and every later version can import it.
Backups and exports are not encrypted. Import requires an empty store. A backup has everything that
the broker has confirmed before the command started. For a store in an SQL database, use the backup
tools of the database, such as pg_dump.

exit status: 0 success; 1 failure, or the store has errors, which are printed
"""


class _RefusedError(Exception):
    """An operation that is refused, with the reason."""


class _Progress:
    """Shows the progress on a terminal."""

    def __init__(self, what: str) -> None:
        """Start without output."""
        self._description = what
        self._is_shown = sys.stderr.isatty()
        self._percent = -1
        #: Number of finished messages.
        self.done = 0

    def __call__(self, done: int, total: int) -> None:
        """Show the number of finished messages."""
        self.done = done
        percent = 100 * done // total if total else 100
        if self._is_shown and percent != self._percent:
            self._percent = percent
            text = f"\r{self._description} {done:,} of {total:,} messages, {percent} %"
            print(text, end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the progress line."""
        if self._percent >= 0:
            print(file=sys.stderr)


def main(arguments: list[str]) -> int:
    """Run a store command."""
    options = parser().parse_args(arguments)
    work: Callable[[argparse.Namespace], int] = options.work
    try:
        return work(options)
    except (_RefusedError, StoreError) as error:
        reason = str(error)
    except OSError as error:
        reason = describe(error)
    print(f"stompkit store: {reason}", file=sys.stderr)
    return 1


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit store",
        description="Back up, check, compact, export or import the message store of a broker.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = Subcommands(parser)

    def add(
        name: str, what: str, work: Callable[[argparse.Namespace], int], *names: str
    ) -> argparse.ArgumentParser:
        command = commands.add(name, what, work=work)
        for each in names:
            command.add_argument(each.lower(), metavar=each, help=_ARGUMENTS[each])
        return command

    for command in (
        add("backup", "copy a store, also while a broker uses it", _backup, "DIRECTORY", "TARGET"),
        add("check", "read a whole store and print all errors", _check, "DIRECTORY"),
        add("compact", "rewrite a store without its unused space", _compact, "DIRECTORY"),
    ):
        command.add_argument("--json", action="store_true", help="print the result as JSON")
        assert isinstance(command, Parser)
        command.instead_of_url = "For an SQL database, use its own tools, such as pg_dump"
    add("export", "write a store to a file", _export, "STORE", "FILE")
    add("import", "import a file into an empty store", _import, "FILE", "STORE")
    return parser


_ARGUMENTS: Final = {
    "DIRECTORY": "the broker's data directory",
    "TARGET": "the directory to create",
    "STORE": "the broker's data directory, or the URL of its SQL database, also as env:NAME or"
    " file:PATH",
    "FILE": "the export file; - for standard input or output",
}


def _backup(options: argparse.Namespace) -> int:
    octets = backup(Path(options.directory), Path(options.target))
    if options.json:
        print(json_line({"directory": options.target, "bytes": octets}))
    else:
        print(f"{options.target}: {amount(octets, 'byte')} written")
    return 0


def _check(options: argparse.Namespace) -> int:
    progress = _Progress("read")
    try:
        problems = check_store(Path(options.directory), progress)
    finally:
        progress.end()
    if options.json:
        print(json_line(checked(Path(options.directory), problems)))
    else:
        print("\n".join(problems) or f"{options.directory}: OK")
    return 1 if problems else 0


def _compact(options: argparse.Namespace) -> int:
    before, after = compact(Path(options.directory))
    if options.json:
        result = {"file": options.directory, "octets_before": before, "octets_after": after}
        print(json_line(result))
    else:
        print(f"{options.directory}: {before:,} bytes before, {after:,} bytes after")
    return 0


def _export(options: argparse.Namespace) -> int:
    progress = _Progress("exported")
    with _open_store(options.store, is_made=False) as store, _new_file(options.file) as file:
        try:
            export_store(store, file, progress)
        finally:
            progress.end()
    # Standard output may be the export.
    to = sys.stderr if options.file == "-" else sys.stdout
    print(f"{amount(progress.done, 'message')} exported", file=to)
    return 0


def _import(options: argparse.Namespace) -> int:
    progress = _Progress("imported")
    with _old_file(options.file) as file, _open_store(options.store, is_made=True) as store:
        try:
            import_store(store, file, progress)
        finally:
            progress.end()
    print(f"{amount(progress.done, 'message')} imported")
    return 0


@contextmanager
def _open_store(where: str, *, is_made: bool) -> Iterator[MessageStore]:
    """Open a store that no broker uses; a missing one is created only if ``is_made``."""
    if "://" in where or is_reference(where):
        with _opened(StoreSettings(url=where)) as store:
            yield store
        return
    directory = Path(where)
    if not is_made and not has_lmdb(directory):
        raise _RefusedError(
            f"there is no store in {directory}. Name the directory of --data, or path in [store]."
        )
    lock = DirectoryLock(directory)
    if not lock.try_acquire():
        raise _RefusedError(f"{directory} is in use by {lock.holder()}: stop that first")
    try:
        with _opened(StoreSettings(path=where)) as store:
            yield store
    finally:
        lock.release()


@contextmanager
def _opened(settings: StoreSettings) -> Iterator[MessageStore]:
    try:
        store = make_store(settings)
    except (ValueError, ModuleNotFoundError) as error:
        raise _RefusedError(str(error)) from None
    assert store is not None  # there is a path or URL
    store.open()
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _new_file(name: str) -> Iterator[BinaryIO]:
    """Open a file that gets its name once it is complete, and that only its user can read."""
    if name == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    if path.exists():
        raise _RefusedError(f"{path} is there already: remove it, or take another name")
    with replacing(path) as file:
        yield file


@contextmanager
def _old_file(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
    else:
        with open(name, "rb") as file:
            yield file
