r"""Faults in a TOML file.

A script has an optional ``seed``, and tables ``[[fault]]``. ``do`` names a method of Proxy,
``frame`` is its argument ``command``, and the other keys are keywords of the method::

    seed = 7

    [[fault]]
    do = "drop"
    frame = "MESSAGE"
    headers = { destination = "/queue/x", receipt = { absent = true } }
    nth = 3

The value of a header, or the ``body``, is a text, or ``{ pattern = "..." }``, a regular expression
to search for; a header can be ``{ absent = true }``. ``what`` of ``inject`` is a text, in
which ``\u0000`` is a NUL, or ``{ command = "...", headers = { ... }, body = "..." }``.
"""

from __future__ import annotations

import inspect
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stompkit._common.spelling import suggestion
from stompkit.frames import Frame, LocalProtocolError
from stompkit.testing.proxy.faults import Fault
from stompkit.testing.proxy.methods import FaultMethods
from stompkit.testing.proxy.rules import Rule

__all__ = ["FaultScript", "FaultScriptError"]

#: Valid values of ``do``.
_KINDS: Final = tuple(
    name for name in vars(FaultMethods) if not name.startswith("_") and name.islower()
)
#: The keywords of a method with ``**where``, except headers, which are a table.
_WHERE: Final = (
    "headers", "body", "direction", "connection", "nth", "every", "times", "probability",
)  # fmt: skip
_TEXTS: Final = ("frame", "direction", "side", "gone")
_FLAGS: Final = ("after", "later")
_TABLE: Final = re.compile(r"\s*\[\[\s*fault\s*\]\]")
_TOML_LINE: Final = re.compile(r"(.*) \(at line (\d+), column (\d+)\)")


class FaultScriptError(ValueError):
    """An invalid script; ``problems`` lists all errors in it."""

    def __init__(self, problems: list[str]) -> None:
        """Store one sentence for each error."""
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class FaultScript:
    """Faults that were read from a file and validated."""

    faults: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """The faults: the method name, and the keywords for the call."""
    seed: int | None = None
    """The seed, if the script has one."""

    @staticmethod
    def load(path: str | os.PathLike[str]) -> FaultScript:
        """Read a file; raises OSError, and FaultScriptError with all errors."""
        path = Path(path)
        octets = path.read_bytes()
        try:
            text = octets.decode()
        except UnicodeDecodeError as error:
            line = octets.count(b"\n", 0, error.start) + 1
            raise FaultScriptError([f"{path}, line {line}: not UTF-8"]) from None
        return FaultScript.parse(text, str(path))

    @staticmethod
    def parse(text: str, name: str = "script") -> FaultScript:
        """Parse a text; raises FaultScriptError with all errors and their positions."""
        try:
            document = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise FaultScriptError([_not_toml(name, str(error))]) from None
        return _Reading(text, name, document).script()

    def apply(self, proxy: FaultMethods) -> list[Fault]:
        """Activate the faults in their order; the seed is for the code that creates the proxy."""
        return [getattr(proxy, kind)(**keywords) for kind, keywords in self.faults]


def _not_toml(name: str, reason: str) -> str:
    found = _TOML_LINE.fullmatch(reason)
    if found is None:
        return f"{name}: not TOML: {reason}"
    return f"{name}, line {found[2]}: not TOML: {found[1]} in column {found[3]}"


class _ScriptError(Exception):
    """An error in the value of a key, or in the whole fault if there is no key."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(what)
        self.key = key
        self.what = what


class _Checking(FaultMethods):
    """Creates faults without activating them, to validate them."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []

    def _put(self, rule: Rule) -> Fault:
        self.rules.append(rule)
        return Fault(rule, self.rules.remove)


class _Reading:
    """A document, and the errors found in it."""

    def __init__(self, text: str, name: str, document: dict[str, Any]) -> None:
        self._lines = text.split("\n")
        self._name = name
        self._document = document
        self._begins = list(self._tables())
        self._problems: list[tuple[int, str]] = []

    def script(self) -> FaultScript:
        """Return the script; raises FaultScriptError."""
        document = self._document
        for key in document.keys() - {"seed", "fault"}:
            self._add(self._line(key), f"{key}: there is only seed and [[fault]]")
        seed = document.get("seed")
        if seed is not None and type(seed) is not int:
            self._add(self._line("seed"), f"seed: is {seed!r}, not a whole number")
        tables = document.get("fault", [])
        if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
            self._add(self._line("fault"), "fault: is to be a table, written [[fault]]")
            tables = []
        faults = [self._fault(number, table) for number, table in enumerate(tables, 1)]
        if self._problems:
            raise FaultScriptError([problem for _, problem in sorted(self._problems)])
        return FaultScript(tuple(filter(None, faults)), seed)

    def _fault(self, number: int, table: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """Read one fault; return ``None`` after recording an error."""
        begin = self._begins[number - 1] if number <= len(self._begins) else 0
        end = self._begins[number] if number < len(self._begins) else len(self._lines) + 1
        try:
            kind = _kind(table)
            keywords = _keywords(kind, table)
            _check(kind, keywords)
        except _ScriptError as mistake:
            line = (self._line(mistake.key, begin, end) if begin else 0) or begin
            key = f" {mistake.key}" * bool(mistake.key)
            self._add(line, f"[[fault]] #{number}{key}: {mistake.what}")
            return None
        return kind, keywords

    def _add(self, line: int, problem: str) -> None:
        where = f"{self._name}, line {line}" if line else self._name
        self._problems.append((line, f"{where}: {problem}"))

    def _line(self, key: str, begin: int = 1, end: int | None = None) -> int:
        """Return the line number of a key, searched from ``begin`` on; 0 if not found."""
        if not key:
            return 0
        written = re.compile(rf"""\s*\[*\s*["']?{re.escape(key)}\b""")
        for number, line in enumerate(self._lines[begin - 1 : end and end - 1], begin):
            if written.match(line):
                return number
        return 0

    def _tables(self) -> Iterator[int]:
        """Yield the line numbers of the faults."""
        found = 0
        for number, line in enumerate(self._lines, 1):
            if not _TABLE.match(line):
                continue
            try:
                read = tomllib.loads("\n".join(self._lines[:number]))
            except tomllib.TOMLDecodeError:
                continue  # within a text of several lines
            if len(read.get("fault", [])) == found + 1:
                found += 1
                yield number


def _kind(table: Mapping[str, Any]) -> str:
    kind = table.get("do")
    if kind is None:
        raise _ScriptError("", f"needs do, one of {', '.join(_KINDS)}")
    if kind not in _KINDS:
        raise _ScriptError("do", f"is {kind!r}; {suggestion(str(kind), _KINDS)}")
    return str(kind)


def _keywords(kind: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords for the method; raises _ScriptError."""
    parameters = dict(inspect.signature(getattr(FaultMethods, kind)).parameters)
    del parameters["self"]
    known = {"frame" if name == "command" else name: name for name in parameters}
    if known.pop("where", None):
        known |= {name: name for name in _WHERE}
    for key in table:
        if key != "do" and key not in known:
            raise _ScriptError(key, f"{kind} has no such key; {suggestion(key, known)}")
    for key, name in known.items():
        is_needed = name in parameters and parameters[name].default is inspect.Parameter.empty
        if is_needed and key not in table:
            raise _ScriptError("", f"{kind} needs {key}")
    return {known[key]: _value(key, value) for key, value in table.items() if key != "do"}


def _value(key: str, value: Any) -> Any:
    """Return the value of a key in the form that the method takes; raises _ScriptError."""
    if key == "headers":
        if not isinstance(value, dict):
            raise _ScriptError(key, f"is {value!r}, not a table of headers")
        return {name: _wanted(key, each, name) for name, each in value.items()}
    if key == "body":
        return _wanted(key, value)
    if key == "what":
        return _injected(value)
    for keys, kind, name in ((_TEXTS, str, "text"), (_FLAGS, bool, "true or false")):
        if key in keys and type(value) is not kind:
            raise _ScriptError(key, f"is {value!r}, not {name}")
    return value


def _wanted(key: str, value: Any, header: str = "") -> str | re.Pattern[str] | None:
    """Return the condition for a header or the body; raises _ScriptError."""
    if isinstance(value, str):
        return value
    if header and value == {"absent": True}:
        return None
    if isinstance(value, dict) and value.keys() == {"pattern"} and type(value["pattern"]) is str:
        try:
            return re.compile(value["pattern"])
        except re.error as error:
            what = f"{value['pattern']!r} is no regular expression: {error}"
            raise _ScriptError(key, what) from None
    forms = "a text" + (", { absent = true }" if header else "") + ' or { pattern = "..." }'
    raise _ScriptError(key, f"{f'{header}: ' * bool(header)}is {value!r}, not {forms}")


def _injected(value: Any) -> Frame | bytes:
    """Return the data to inject; raises _ScriptError."""
    if isinstance(value, str):
        return value.encode()
    parts = value if isinstance(value, dict) else {}
    command, headers, body = parts.get("command"), parts.get("headers", {}), parts.get("body", "")
    if (
        parts.keys() <= {"command", "headers", "body"}
        and isinstance(command, str)
        and isinstance(headers, dict)
        and all(isinstance(each, str) for each in headers.values())
        and isinstance(body, str)
    ):
        return Frame(command, headers, body.encode())
    raise _ScriptError(
        "what", f"is {value!r}, neither a text nor a table of command, headers and body"
    )


def _check(kind: str, keywords: Mapping[str, Any]) -> None:
    """Create a fault without activating it; raises _ScriptError."""
    checking = _Checking()
    try:
        getattr(checking, kind)(**keywords)
    except (TypeError, ValueError, LocalProtocolError) as error:
        word = str(error).partition(" ")[0]
        raise _ScriptError(word if word in keywords else "", f"{kind}: {error}") from None
    [rule] = checking.rules
    if rule.about == "connections" and not rule.later:
        frame = "" if kind == "stop_reading" else "a frame, or "
        raise _ScriptError("", f"{kind} needs {frame}later = true: nobody has connected yet")
