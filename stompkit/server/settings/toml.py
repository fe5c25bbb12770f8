"""A TOML file, with the line numbers of problems that are found later."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["Document", "Place", "SettingsError", "nested", "parse"]

#: The path to a value: names of tables and keys, and indices of arrays.
Place = tuple[str | int, ...]

#: Tokens that decide where a TOML statement ends: strings, comments, brackets and line ends.
_TOKEN: Final = re.compile(
    r'''"""(?:[^"\\]|\\.|""?(?!"))*+"{3,5}|"(?:[^"\\\n]|\\.)*+"'''
    r"""|'{3}(?:[^']|''?(?!'))*+'{3,5}|'[^'\n]*'|\#[^\n]*|[][{}\n]""",
    re.DOTALL,
)
_TOML_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


class SettingsError(Exception):
    """Invalid settings; ``problems`` lists all problems."""

    def __init__(self, problems: list[str]) -> None:
        """Keep one sentence for each problem."""
        super().__init__("\n".join(problems))
        self.problems = problems


class Document:
    """A file's tables, and the problems found in them."""

    def __init__(self, name: str, text: str, tables: Mapping[str, Any]) -> None:
        """Start without problems; ``text`` is the source of ``tables``."""
        self.name = name
        self.tables = tables
        #: Items of arrays of tables that are too malformed to become structs.
        self.unmade: set[Place] = set()
        self._text = text
        self._lines: dict[Place, int] | None = None
        self._found: list[tuple[int, str]] = []

    def add(self, place: Place, what: str) -> None:
        """Record a problem at a place."""
        number = self._line(place)
        where = f"{self.name}, line {number}" if number else self.name
        self._found.append((number, f"{where}: {self._label(place)}: {what}"))

    @property
    def problems(self) -> list[str]:
        """The recorded problems, in the order of the file."""
        return [problem for _, problem in sorted(self._found, key=lambda each: each[0])]

    def has(self, place: Place) -> bool:
        """Return True if the file has a value at a place."""
        return self.at(place) is not None

    def at(self, place: Place) -> Any:
        """Return the file's value at a place; ``None`` if there is none."""
        value: Any = self.tables
        for step in place:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def _line(self, place: Place) -> int:
        """Return the line number of a value, or of its table; 0 if unknown."""
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
        """Return a place as written in the file: ``[broker.limits] max_headers``."""
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
    """Yield the position of each table and key of a valid document."""
    inside: Place = ()
    counts: dict[Place, int] = {}
    for statement, begin in _statements(text):
        content = tomllib.loads(statement)
        if not content:
            continue  # a comment
        places = list(_places(content))
        if statement.lstrip().startswith("["):
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


def _statements(text: str) -> Iterator[tuple[str, int]]:
    """Yield the statements of a valid document, each with its first line number.

    A statement can span several lines: it ends where no bracket and no string is open.
    """
    text += "\n"
    depth = start = 0
    number = begin = 1
    for token in _TOKEN.finditer(text):
        found = token[0]
        number += found.count("\n")
        if found in "[{":
            depth += 1
        elif found in "]}":
            depth -= 1
        elif found == "\n" and not depth:
            yield text[start : token.end()], begin
            start, begin = token.end(), number


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
    """Return the place that a header refers to: the last item of each array on the path."""
    place: Place = ()
    for step in path[:-1]:
        place = (*place, step)
        if place in counts:
            place = (*place, counts[place])
    return (*place, path[-1])


def parse(text: str, name: str) -> Document:
    """Parse TOML; raises :class:`SettingsError` for invalid text."""
    try:
        return Document(name, text, tomllib.loads(text))
    except RecursionError:
        raise nested(name) from None
    except ValueError as error:  # also of a number with too many digits
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


def nested(name: str) -> SettingsError:
    """Return the error for a file that is nested too deeply."""
    return SettingsError([f"{name}: tables or arrays are nested too deeply to be read"])
