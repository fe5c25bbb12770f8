"""Log events of the client."""

from __future__ import annotations

from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent
from zope.interface import implementer

__all__ = ["Log"]


@implementer(ILogObserver)
class Log:
    """A collection of log events."""

    def __init__(self) -> None:
        """Start empty."""
        self.events: list[LogEvent] = []

    def __call__(self, event: LogEvent) -> None:
        """Keep an event."""
        self.events.append(event)

    @property
    def text(self) -> str:
        """The whole log, as people read it."""
        return "\n".join(map(_text, self.events))

    def take_errors(self) -> str:
        """Return the errors and remove them, so that they do not fail the test."""
        errors = [event for event in self.events if event["log_level"] >= LogLevel.error]
        self.events = [event for event in self.events if event not in errors]
        return "\n".join(map(_text, errors))


def _text(event: LogEvent) -> str:
    text = formatEvent(event)
    failure = event.get("log_failure")
    return text if failure is None else f"{text} {failure.getTraceback()}"
