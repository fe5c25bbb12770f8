"""Lines of the log in JSON, checked against their schema."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from jsonschema import Draft202012Validator
from twisted.logger import globalLogPublisher

from stompkit.server.log.observer import LogObserver, LogSwitch
from stompkit.server.log.schema import log_schema

__all__ = ["DRIVEN", "LogLines", "logged_lines", "logs"]

_SCHEMA: Final = Draft202012Validator(
    log_schema(), format_checker=Draft202012Validator.FORMAT_CHECKER
)
#: The events that tests have to cause, with the names of the tests.
DRIVEN: Final[dict[str, str]] = {}
T = TypeVar("T", bound=Callable[..., object])


def logs(*names: str) -> Callable[[T], T]:
    """Mark a test with the events that it causes; the fixture ``lines`` looks for them."""

    def mark(test: T) -> T:
        DRIVEN.update(dict.fromkeys(names, test.__name__))
        test.logs = names  # type: ignore[attr-defined]
        return test

    return mark


class LogLines:
    """Events of this process and of others, decoded."""

    def __init__(self) -> None:
        """Start without events."""
        self._stream = io.StringIO()
        self._others: list[str] = []

    @property
    def stream(self) -> io.StringIO:
        """Where the events of this process go."""
        return self._stream

    def add(self, text: str) -> None:
        """Add the log of another process."""
        self._others += text.splitlines()

    def events(self, name: str = "") -> list[dict[str, Any]]:
        """Return the events with a name, or all; each has to be valid."""
        lines = [*self._stream.getvalue().splitlines(), *self._others]
        found = []
        for line in lines:
            assert line.isprintable()
            event = json.loads(line)
            _SCHEMA.validate(event)
            found.append(event)
        return [each for each in found if name in ("", each["event"])]


@contextmanager
def logged_lines() -> Iterator[LogLines]:
    """Yield the events that are logged meanwhile."""
    lines = LogLines()
    observer = LogObserver(lines.stream, LogSwitch("json"))
    globalLogPublisher.addObserver(observer)
    try:
        yield lines
    finally:
        globalLogPublisher.removeObserver(observer)
