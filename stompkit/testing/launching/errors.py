"""Errors raised when a broker for tests is not available, worded for the output of the tests."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from tempfile import mkstemp
from typing import Final

from stompkit._common.spelling import amount

__all__ = ["BY_HAND", "BrokerError", "BrokerMissingError", "BrokerStartError"]

_SHOWN_LOG_LINES = 40
_NUMBER: Final = re.compile(r"\d+")
#: Remedy for a broker that ended without a known reason.
BY_HAND: Final = "run the command by hand, in the directory of its log"


class BrokerError(Exception):
    """A broker for tests is not available; also raised for an unknown launcher name."""

    def for_command(self) -> str:
        """Return the message for the user of a command, who cannot set a LaunchConfig."""
        return str(self)


class BrokerMissingError(BrokerError):
    """The server software is not installed on this machine.

    ``name`` is the broker's name; ``reason`` says which files were missing and how to install them.
    """

    def __init__(self, name: str, reason: str) -> None:
        """Store both for a summary at the end of the tests."""
        super().__init__(f"{name} is not installed: {reason}")
        self.name = name
        self.reason = reason


@dataclass(frozen=True)
class Attempt:
    """Details of a failed start."""

    name: str
    """The broker's name."""
    problem: str
    """The error, as the end of a sentence that starts with the broker's name."""
    command: Sequence[str] = ()
    """The command that was run; empty when nothing was run."""
    log_path: Path | None = None
    """The file with the output of the process; ``None`` if ``problem`` already says it all."""
    log: str = ""
    """Contents of that file."""
    is_log_kept: bool = False
    """True if the file remains when this process ends."""
    remedies: Sequence[str] = ()
    """Possible remedies, one sentence each."""


class BrokerStartError(BrokerError):
    """The broker was started but did not answer CONNECT.

    The message shows the command, the waiting time, the exit status if the process ended, the last
    lines of its log, and the remedies.  ``attempt`` has the same details as fields.
    """

    def __init__(self, attempt: Attempt) -> None:
        """Compose the message."""
        super().__init__(_describe(attempt))
        self.attempt = attempt

    def for_command(self) -> str:
        """Return the message for the user of a command, and copy the log to a file that remains."""
        attempt = self.attempt
        possible = [
            each.replace(" or LaunchConfig(directory=...)", "") for each in attempt.remedies
        ]
        # The directory of a launch does not remain.
        possible = ["run the command by hand" if each == BY_HAND else each for each in possible]
        kept = None if attempt.log_path is None or attempt.is_log_kept else _kept_log(attempt.log)
        return _describe(
            replace(
                attempt,
                log_path=kept or attempt.log_path,
                is_log_kept=attempt.is_log_kept or kept is not None,
                remedies=[each for each in possible if "LaunchConfig(" not in each],
            )
        )


def _kept_log(log: str) -> Path | None:
    """Write a log to a new temporary file; return None if that fails."""
    try:
        number, name = mkstemp(prefix="stompkit-broker-", suffix=".log")
        with open(number, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(log)
    except OSError:
        return None
    return Path(name)


def _describe(attempt: Attempt) -> str:
    """Return the message, without the parts that are unknown."""
    lines = [f"{attempt.name} did not start: it {attempt.problem}."]
    if attempt.command:
        lines.append(f"  command: {shlex.join(attempt.command)}")
    if attempt.log_path is not None:
        lines.append(f"  log:     {attempt.log_path}")
        if not attempt.is_log_kept:
            lines.append(
                "           (removed when these tests end; LaunchConfig(directory=...) or"
                " stomp_broker_factory(directory=...) names a directory that is kept)"
            )
        lines += _last_lines(attempt.log)
    if attempt.remedies:
        lines.append("  what to try:")
        lines += [f"    - {remedy}" for remedy in attempt.remedies]
    return "\n".join(lines)


def _last_lines(log: str) -> list[str]:
    """Quote the end of a log; of lines that differ only in numbers, the first one."""
    lines: list[str] = []
    for _, group in groupby(log.splitlines(), lambda line: _NUMBER.sub("", line)):
        first, *similar = group
        lines.append(first)
        if similar:
            lines.append(f"({amount(len(similar), 'similar line')})")
    shown = lines[-_SHOWN_LOG_LINES:]
    if not shown:
        return ["  the log is empty: the process wrote nothing"]
    return ["  last lines of the log:", *(f"    | {line}" for line in shown)]


def describe_exit(status: int) -> str:
    """Describe in words how a process ended; a negative ``status`` is the number of a signal."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
