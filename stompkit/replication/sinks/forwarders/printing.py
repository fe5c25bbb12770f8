"""Changes as lines of text, or as lines of JSON."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Collection, Iterator
from threading import Lock
from typing import Any, Final, Literal, TextIO

from blinker import Signal

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.signals import CHANGESET, row_signals
from stompkit.replication.model.values import InvalidValueError, Row, row_to_json
from stompkit.replication.sinks.forwarders._choice import choose

__all__ = ["Printer", "print_sub"]

_log: Final = logging.getLogger(__name__)


def print_sub(
    tables: Collection[str] | None,
    *,
    file: TextIO | None = None,
    format: Literal["text", "json"] = "text",
    changesets: Signal = CHANGESET,
) -> Printer:
    """Print the changes of ``tables``, by default to standard output.

    As text there is a line ``TABLE_ACTION -> KEY`` for each event, with the names and keys of
    :mod:`~stompkit.replication.model.signals`, and one for each ``truncate`` and ``schema``. As
    JSON there is an object for each change: its own members, and ``changeset``, ``origin``,
    ``sequence`` and ``timestamp`` of the changeset. Control characters for terminals are escaped in
    every line.

    ``tables`` are names with or without their schemas; ``None`` prints all tables, with their
    schemas. ``changesets`` is the signal to connect to: that of one publisher, or of all. Printing
    continues until the returned printer is closed, even without a reference to it. Raises
    ``ValueError`` for anything but a list, a tuple or a set, and for an unknown ``format``.
    """
    if format not in ("text", "json"):
        raise ValueError(f"format is 'text' or 'json', not {format!r}")
    printer = Printer(tables, file, is_json=format == "json", changesets=changesets)
    changesets.connect(printer, weak=False)
    return printer


class Printer:
    """Prints changesets; the handle of :func:`print_sub`."""

    def __init__(
        self,
        tables: Collection[str] | None,
        file: TextIO | None,
        *,
        is_json: bool,
        changesets: Signal = CHANGESET,
    ) -> None:
        """Print to ``file``, or to the current standard output; raises ``ValueError``."""
        self._name_of = choose(tables)
        self._file = file
        self._signal = changesets
        self._lines = _json_lines if is_json else _text_lines
        # Publishers of several threads may print.
        self._lock = Lock()
        self.is_closed = False
        """True if it was closed, or printing has failed."""

    def __call__(self, changeset: Changeset) -> None:
        """Print a changeset, all of it at once.

        If printing fails, for example because a pipe has no reader, it ends with a warning. The
        publisher's other receivers are not affected.
        """
        lines = [
            line
            for change in changeset.changes
            if (name := self._name_of(change)) is not None
            for line in self._lines(changeset, change, name)
        ]
        with self._lock:
            if not lines or self.is_closed:
                return
            file = self._file or sys.stdout
            text = "".join(f"{line}\n" for line in lines)
            encoding = getattr(file, "encoding", None) or "utf-8"
            try:
                file.write(text.encode(encoding, "backslashreplace").decode(encoding))
                file.flush()
            except (OSError, ValueError) as problem:
                _log.warning("printing of changes ends: %s", problem)
                self.close()

    def close(self) -> None:
        """Stop printing; a given file stays open."""
        self.is_closed = True
        self._signal.disconnect(self)


def _text_lines(changeset: Changeset, change: RowChange, name: str) -> Iterator[str]:
    match change.action:
        case "truncate":
            yield printable(f"{name}_truncate")
        case "schema":
            yield printable(f"{name}_schema -> {(change.after or {}).get('statement', '')}")
        case _:
            for signal_name, key in row_signals(change):
                action = signal_name.rpartition("_")[2]
                yield f"{printable(f'{name}_{action}')} -> {printable(_key_text(key))}"


def _key_text(key: Any) -> str:
    """Return a key of one text as that text; otherwise in a form with distinct parts."""
    return key if isinstance(key, str) else repr(key) if isinstance(key, tuple) else str(key)


def printable(text: str) -> str:
    r"""Return text with unprintable characters escaped, such as ``\x1b`` and ``\u202e``."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        each
        if each.isprintable() and each != "\\"
        else each.encode("unicode_escape", "surrogatepass").decode("ascii")
        for each in text
    )


def _json_lines(changeset: Changeset, change: RowChange, name: str) -> Iterator[str]:
    line = {
        "changeset": changeset.id,
        "origin": changeset.origin,
        "sequence": changeset.sequence,
        "timestamp": changeset.timestamp.isoformat(),
        "schema": change.schema,
        "table": change.table,
        "action": change.action,
        "key": _shown(change.key),
        "old_key": _shown(change.old_key),
        "before": _shown(change.before),
        "after": _shown(change.after),
    }
    # ASCII only: JSON itself allows characters that control a terminal.
    yield json.dumps({member: value for member, value in line.items() if value is not None})


def _shown(row: Row | None) -> dict[str, object] | None:
    if row is None:
        return None
    try:
        return row_to_json(row)
    except InvalidValueError:
        # In this process there may be values that cannot be encoded.
        return {name: repr(value) for name, value in row.items()}
