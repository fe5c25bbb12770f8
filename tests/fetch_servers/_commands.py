"""Run the programs that download servers, with signs of progress."""

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

#: Interval of the progress messages, in seconds.
_SHOWN_S: Final = 15.0
#: Length of the shown part of a log's last line.
_MOST_CHARACTERS: Final = 90


class FetchError(Exception):
    """A download has failed; the message is one line with the reason and the remedy."""


def run(
    command: Sequence[str],
    log: Path,
    say: Say,
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    name: str = "",
) -> None:
    """Run a program to its end; append its output to the file ``log``.

    Raise FetchError if it is missing or fails; ``name`` is its name in the message.
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
                # Its children are in its group, and are killed with it.
                start_new_session=True,
            )
        except OSError as error:
            raise FetchError(f"{name} cannot be run: {error.strerror}") from None
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
    """Return the last output of a program, or its first error message."""
    lines = log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").splitlines()
    written = [line.strip() for line in lines if line.strip(" \x1b[0m")]
    errors = [line for line in written[-30:] if line.startswith(("E: ", "[ERROR] Failed"))]
    return next(iter(errors or written[-1:]), "nothing was written")[:_MOST_CHARACTERS]
