"""A TOML file, and where in it the mistakes are that are found later."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["Document", "Place", "SettingsError", "parse"]

#: The way to a value: names of tables and keys, and indices of arrays.
Place = tuple[str | int, ...]

_TOML_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


class SettingsError(Exception):
    """Settings that can't be used; ``problems`` says all that is wrong with them."""

    def __init__(self, problems: list[str]) -> None:
        """Keep one sentence for each mistake."""
        super().__init__("\n".join(problems))
        self.problems = problems


class Document:
    """A file's tables, and the mistakes found in them."""

    def __init__(self, name: str, text: str, tables: Mapping[str, Any]) -> None:
        """Begin without mistakes; ``text`` is where ``tables`` come from."""
        self.name = name
        self.tables = tables
        #: The items of arrays of tables that are so wrong that no struct could be made of them.
        self.unmade: set[Place] = set()
        self._text = text
        self._lines: dict[Place, int] | None = None
        self._found: list[tuple[int, str]] = []

    def add(self, place: Place, what: str) -> None:
        """Note a mistake at a place."""
        number = self._line(place)
        where = f"{self.name}, line {number}" if number else self.name
        self._found.append((number, f"{where}: {self._label(place)}: {what}"))

    @property
    def problems(self) -> list[str]:
        """What was noted, in the order of the file."""
        return [problem for _, problem in sorted(self._found, key=lambda each: each[0])]

    def has(self, place: Place) -> bool:
        """Whether the file says something at a place."""
        return self.at(place) is not None

    def at(self, place: Place) -> Any:
        """What the file says at a place; ``None`` for nothing."""
        value: Any = self.tables
        for step in place:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def _line(self, place: Place) -> int:
        """The number of the line of a value, or of what it is in; 0 for unknown."""
        if self._lines is None:
            self._lines = {}
            for each, number in _lines(self._text):
                self._lines.setdefault(each, number)
        while place:
            if place in self._lines:
                return self._lines[place]
            place = place[:-1]
        return 0

    def _label(self, place: Place) -> str:
        """A place as it is written in the file: ``[broker.limits] max_headers``."""
        value = self.at(place)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return f"[[{_dotted(place)}]]"
        if isinstance(place[-1], int):
            return f"[[{_dotted(place[:-1])}]] #{place[-1] + 1}"
        if isinstance(value, dict) and all(isinstance(step, str) for step in place):
            return f"[{_dotted(place)}]"
        table, key = place[:-1], str(place[-1])
        if not table:
            return key
        if isinstance(table[-1], int):
            return f"{self._label(table)} {key}"
        return f"[{_dotted(table)}] {key}"


def _dotted(place: Place) -> str:
    return ".".join(str(step) for step in place if isinstance(step, str))


def _lines(text: str) -> Iterator[tuple[Place, int]]:
    """Where each table and key of a valid document begins.

    A statement may go over several lines; it ends where what has been read of it is a document.
    """
    inside: Place = ()
    counts: dict[Place, int] = {}
    statement, begin = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        begin = begin if statement else number
        statement += line + "\n"
        try:
            content = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        is_header = statement.lstrip().startswith("[")
        statement = ""
        places = list(_places(content))
        if is_header:
            path = places[-1]
            inside = _counted(path, counts)
            if isinstance(_value_at(content, path), list):
                counts[inside] = counts.get(inside, -1) + 1
                inside = (*inside, counts[inside])
            for length in range(1, len(inside) + 1):
                yield inside[:length], begin
        else:
            for place in places:
                yield (*inside, *place), begin


def _places(content: Mapping[str, Any], prefix: Place = ()) -> Iterator[Place]:
    for key, value in content.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from _places(value, (*prefix, key))


def _value_at(content: Mapping[str, Any], place: Place) -> object:
    value: Any = content
    for step in place:
        value = value[step]
    return value


def _counted(path: Place, counts: Mapping[Place, int]) -> Place:
    """The place that a header means: the last item of each array on the way to it."""
    place: Place = ()
    for step in path[:-1]:
        place = (*place, step)
        if place in counts:
            place = (*place, counts[place])
    return (*place, path[-1])


def parse(text: str, name: str) -> Document:
    """Read TOML; raises :class:`SettingsError` for anything else."""
    try:
        return Document(name, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        reason = str(error)
        found = _TOML_PLACE.search(reason)
        where, column = name, ""
        if found is not None:
            reason = reason[: found.start()]
            if found[1] is None:
                column = " at the end of the file"
            else:
                where, column = f"{name}, line {found[1]}", f" in column {found[2]}"
        raise SettingsError([f"{where}: not TOML: {reason}{column}"]) from None
