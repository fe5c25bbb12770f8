"""Runs the programs that fetch servers, and shows that they are at work."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["FetchError", "Say", "run"]

#: Prints a line.
Say = Callable[[str], None]

#: How often to show that a program is still at work, in seconds.
_SHOWN_S: Final = 15.0
#: What is shown of a log's last line.
_MOST_CHARACTERS: Final = 90


class FetchError(Exception):
    """A server could not be fetched; the message says in one line why, and what to do."""


def run(
    command: Sequence[str],
    log: Path,
    say: Say,
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    name: str = "",
) -> None:
    """Run a program to its end; its output is added to the file ``log``.

    Raises FetchError where it is missing or fails; ``name`` is what to call it then.
    """
    name = name or Path(command[0]).name
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with log.open("ab") as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                cwd=directory,
                # Its children are in its group, and end with it where this program is ended.
                start_new_session=True,
            )
        except OSError as error:
            raise FetchError(f"{name} can't be run: {error.strerror}") from None
        try:
            while True:
                try:
                    status = process.wait(_SHOWN_S)
                    break
                except subprocess.TimeoutExpired:
                    say(f"    {time.monotonic() - started:3.0f} s: {_last_line(log)}")
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    if status:
        raise FetchError(f"{name} failed: {_last_line(log)} (all of it: {log})")


def _last_line(log: Path) -> str:
    """The end of what a program has written: an error if it has named one."""
    lines = log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").splitlines()
    written = [line.strip() for line in lines if line.strip(" \x1b[0m")]
    errors = [line for line in written[-30:] if line.startswith(("E: ", "[ERROR] Failed"))]
    return next(iter(errors or written[-1:]), "nothing was written")[:_MOST_CHARACTERS]
