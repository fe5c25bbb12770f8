"""What can go wrong when a test asks for a broker, in words for whoever reads the test's output."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BrokerError", "BrokerMissing", "BrokerStartError"]

_SHOWN_LOG_LINES = 40


class BrokerError(Exception):
    """A broker for tests could not be had; also raised for a name that no launcher has."""


class BrokerMissing(BrokerError):
    """The server software is not installed here.

    ``name`` is the broker's name; ``reason`` says what was looked for and how to get it.
    """

    def __init__(self, name: str, reason: str) -> None:
        """Keep both for a summary at the end of the tests."""
        super().__init__(f"{name} is not installed: {reason}")
        self.name = name
        self.reason = reason


@dataclass(frozen=True)
class Attempt:
    """What is known of a start that failed."""

    name: str
    """The broker's name."""
    problem: str
    """What went wrong, as the end of a sentence that starts with the broker's name."""
    command: Sequence[str] = ()
    """The command that was run; empty when nothing was run."""
    log_path: Path | None = None
    """The file with everything that the process wrote."""
    log: str = ""
    """What that file holds."""
    is_log_kept: bool = False
    """Whether that file stays when this process ends."""
    remedies: Sequence[str] = ()
    """What can be done about it, one sentence each."""


class BrokerStartError(BrokerError):
    """The broker was run and did not come to answer CONNECT.

    The message shows the command, how long was waited, the exit status if the process ended, the
    last lines of its log, and what to try.  ``attempt`` has the same in parts.
    """

    def __init__(self, attempt: Attempt) -> None:
        """Compose the message."""
        super().__init__(_describe(attempt))
        self.attempt = attempt


def _describe(attempt: Attempt) -> str:
    """Write the message, leaving out the parts about which nothing is known."""
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
    """Quote the end of a log."""
    shown = log.splitlines()[-_SHOWN_LOG_LINES:]
    if not shown:
        return ["  the log is empty: the process wrote nothing"]
    return ["  last lines of the log:", *(f"    | {line}" for line in shown)]


def describe_exit(status: int) -> str:
    """Say in words how a process ended; a negative ``status`` is the number of a signal."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
