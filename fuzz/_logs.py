"""Errors that the code under test logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from twisted.logger import LogLevel, capturedLogs, formatEvent

__all__ = ["no_errors"]

_BAD: Final = (LogLevel.error, LogLevel.critical)


@contextmanager
def no_errors() -> Iterator[None]:
    """Raise AssertionError if the body of the context logs an error."""
    with capturedLogs() as events:
        yield
    for event in events:
        failure = event.get("log_failure")
        if failure is not None:
            raise AssertionError(f"logged: {formatEvent(event)}") from failure.value
        if event.get("log_level") in _BAD:
            raise AssertionError(f"logged: {formatEvent(event)}")
