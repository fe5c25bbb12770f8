"""Kinds of log events: a name, a level, a text, and typed fields."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, ParamSpec

from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from stompkit._common.text import shown

__all__ = ["DATA", "EVENTS", "FAILURE", "Data", "LogEvent", "current_failure", "log_event"]

P = ParamSpec("P")

#: Key of :class:`Data` in an event of Twisted.
DATA: Final = "log_stompkit"
#: Parameter of a kind of event that takes a failure, whose traceback is logged.
FAILURE: Final = "failure"
#: Maximum number of characters of one field.
_MOST_CHARACTERS: Final = 2_000
#: Maximum number of characters of a name that is quoted in a text, since clients choose it.
_MOST_QUOTED: Final = 100
#: Either a part in brackets, which is omitted if one of its fields is empty, or a field. ``!a``
#: quotes it.
_OPTIONAL: Final = re.compile(r"\[([^\[\]]*\{[^\[\]]*)\]")
_FIELD: Final = re.compile(r"\{(\w+)(!a)?\}")

_LEVELS: Final = {
    "info": LogLevel.info,
    "warning": LogLevel.warn,
    "error": LogLevel.error,
    "critical": LogLevel.critical,
}

#: All kinds of events, by name.
EVENTS: Final[dict[str, LogEvent[...]]] = {}


class Data(NamedTuple):
    """Event of the broker, inside the event of Twisted: its name, its text and its fields."""

    name: str
    text: str
    fields: Mapping[str, str | int | float]


class LogEvent(Generic[P]):
    """A kind of event; a call with its fields logs one."""

    def __init__(self, level: str, text: str, described: Callable[P, None]) -> None:
        """Take the name, the description and the fields from a function."""
        self.name = described.__name__.replace("_", "-")
        self.level = level
        self.text = text
        self.about = inspect.getdoc(described) or ""
        self.fields = [each for each in inspect.signature(described).parameters if each != FAILURE]
        self._log = Logger(f"stompkit.{self.name}")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Log an event; empty fields are omitted."""
        given: dict[str, Any] = kwargs
        failure: Failure | None = given.get(FAILURE)
        fields = {
            name: _value(value)
            for name, value in given.items()
            if name != FAILURE and value not in ("", None)
        }
        text = self._formatted(fields)
        more = {} if failure is None else {"log_failure": failure}
        # The text is complete, and must not be taken for a format.
        data = Data(self.name, text, fields)
        self._log.emit(_LEVELS[self.level], "{log_text}", log_text=text, **{DATA: data}, **more)

    def _formatted(self, fields: Mapping[str, str | int | float]) -> str:
        def optional(match: re.Match[str]) -> str:
            names = [name for name, _ in _FIELD.findall(match[1])]
            return match[1] if all(name in fields for name in names) else ""

        def field(match: re.Match[str]) -> str:
            value = str(fields.get(match[1], ""))
            return ascii(value[:_MOST_QUOTED]) if match[2] else shown(value)

        return _FIELD.sub(field, _OPTIONAL.sub(optional, self.text))


def log_event(level: str, text: str) -> Callable[[Callable[P, None]], LogEvent[P]]:
    """Make a function a kind of event: its name, its docstring, and its parameters as fields.

    ``text`` contains the fields as ``{field}``, or ``{field!a}`` to quote one. A part in brackets
    is omitted if one of its fields is empty.
    """

    def made(described: Callable[P, None]) -> LogEvent[P]:
        event = LogEvent(level, text, described)
        assert event.name not in EVENTS, f"{event.name} exists twice"
        EVENTS[event.name] = event
        return event

    return made


def current_failure() -> Failure:
    """Return the exception that is being handled, for an event with a traceback."""
    return Failure()  # type: ignore[no-untyped-call]  # Twisted's


def _value(value: object) -> str | int | float:
    if isinstance(value, bool | int | float):
        return value
    text = str(value)[:_MOST_CHARACTERS]
    # Bytes of clients that are not UTF-8 cannot be written to a file.
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
