"""Status and progress of replication jobs, for ``stompkit replicate``."""

from __future__ import annotations

import json
import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from stompkit._commands.shared.terminal import columns
from stompkit._common.files import FileLock, LockedError, is_locked, write_atomically
from stompkit._common.spelling import amount
from stompkit._common.text import shown_lines
from stompkit.replication.jobs import JobSettings, JobStatus

__all__ = ["Display", "forget", "lock_of", "print_status", "write"]

#: Without a terminal, only every Nth progress line is printed.
_SHOW_EVERY: Final = 10
_BAR: Final = 24


def lock_of(path: Path) -> Path:
    """Return the lock file of the job whose status file is ``path``."""
    return path.with_suffix(".lock")


def write(path: Path, status: JobStatus) -> None:
    """Replace the status file."""
    write_atomically(path, msgspec.json.encode(status), mode=None, durable=False)


class Display:
    """Progress output: one changing line on a terminal; elsewhere an occasional line."""

    def __init__(self) -> None:
        """Check if standard error is a terminal."""
        self._is_terminal = sys.stderr.isatty()
        self._count = 0
        self._last = (0, 0.0)

    def show(self, status: JobStatus) -> None:
        """Show the progress if it is due."""
        line = self._line(status)
        if self._is_terminal:
            print(f"\r\x1b[K{line[: columns()]}", end="", file=sys.stderr, flush=True)
        elif self._count % _SHOW_EVERY == 0:
            print(line, file=sys.stderr, flush=True)
        self._count += 1

    def end(self, status: JobStatus) -> None:
        """Show the final progress."""
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr)
        print(self._line(status), file=sys.stderr, flush=True)

    def _line(self, status: JobStatus) -> str:
        now = status.updated.timestamp()
        changes, before = self._last
        rate = (status.changes - changes) / (now - before) if before and now > before else 0.0
        self._last = (status.changes, now)
        parts = [status.phase]
        for table, (done, of) in status.snapshot.items():
            if done < of:
                filled = done * _BAR // of
                bar = "#" * filled + "." * (_BAR - filled)
                parts.append(f"{table} [{bar}] {done:,} of about {of:,}")
        parts.append(_done(status))
        if rate >= 1:
            parts.append(f"{rate:,.0f}/s")
        parts += _more(status)
        return "  ".join(parts)


def _more(status: JobStatus) -> list[str]:
    """Return additional facts, if there are any."""
    found = [f"no connection to the broker {url}" for url in status.disconnected]
    if status.lag_s is not None:
        found.append(f"lag {max(status.lag_s, 0.0):.1f} s")
    for name, value in (
        ("unconfirmed", status.unconfirmed),
        ("repeats", status.repeats),
        ("dead letters", status.dead_letters),
        ("held back", status.held_back),
        ("backlog", status.backlog),
    ):
        if value:
            found.append(f"{value:,} {name}")
    if status.oldest_s is not None and status.backlog:
        found.append(f"oldest {status.oldest_s:.1f} s")
    return found


# Status.


def print_status(directory: Path, name: str | None, *, as_json: bool) -> int:
    """Print the status of all jobs here, or of the named one.

    Returns 1 if there is none, or if one has failed or is not running, otherwise 0.
    """
    found = [
        (status, is_locked(lock_of(path)))
        for path in sorted(directory.glob("*.status.json"))
        if (status := _read(path)) is not None and name in (None, status.name)
    ]
    if as_json:
        listed = [{**msgspec.to_builtins(status), "running": runs} for status, runs in found]
        print(json.dumps(listed, indent=1))
    elif not found:
        print(f"no job{'' if name is None else f' {name}'} has run with {directory}")
    else:
        for status, runs in found:
            _print_one(status, directory, runs=runs)
    return 0 if found and all(runs or status.phase == "ended" for status, runs in found) else 1


def forget(directory: Path, name: str) -> int:
    """Remove the status of a job that does not run; returns the exit status."""
    path = directory / f"{name}.status.json"
    if "/" in name or not path.exists():
        print(f"stompkit replicate: no job {name} has run with {directory}", file=sys.stderr)
        return 1
    try:
        with FileLock(lock_of(path)).acquire():
            path.unlink(missing_ok=True)
    except LockedError:
        print(f"stompkit replicate: the job {name} is running: end it first", file=sys.stderr)
        return 1
    return 0


def _done(status: JobStatus) -> str:
    return f"{amount(status.changes, 'change')} in {amount(status.changesets, 'changeset')}"


def _print_one(status: JobStatus, directory: Path, *, runs: bool) -> None:
    is_over = status.phase in ("ended", "failed")
    state = status.phase if runs or is_over else f"not running, was {status.phase}"
    when = f" at {_time(status.updated)}"
    print(f"{status.name}: {state}" + (f" (process {status.pid})" if runs else when))
    print(f"  from    {status.source}")
    print(f"  to      {status.to}")
    print(f"  {_done(status)} since {_time(status.started)}")
    for line in (_more(status) and ", ".join(_more(status)), status.position, status.error):
        if line:
            print(f"  {shown_lines(line)}")
    if not runs and status.phase != "ended":
        is_default = directory == JobSettings(source="", to="").directory
        more = "" if is_default else f" --state-dir {shlex.quote(str(directory))}"
        command = f"stompkit replicate --forget {shlex.quote(status.name)}{more}"
        print(f"  To remove it from this list: {command}")


def _time(at: datetime) -> str:
    return at.isoformat(" ", "seconds")


def _read(path: Path) -> JobStatus | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=JobStatus)
    except (OSError, msgspec.DecodeError):
        return None
