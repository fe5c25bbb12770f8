"""Statements between the position of reading and the end of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from typing import Final, Protocol

from pymysqlreplication.event import QueryEvent, RotateEvent

from stompkit.replication.sources.mysql._binlog.events import LogEvent
from stompkit.replication.sources.mysql._positions import Position, is_behind
from stompkit.replication.sources.mysql._reader import Stream
from stompkit.replication.sources.mysql._tables.statements import (
    Effect,
    Name,
    Statement,
    parse_statement,
)

__all__ = ["LaterStatements", "combined"]

#: Maximum number of bytes of rows to read ahead for one statement: the time of a second or two.
_MOST_BYTES: Final = 64 * 1024 * 1024
#: File and offset in the log.
_Place = tuple[str, int]


class _Spell(Protocol):
    def __call__(self, statement: Statement) -> Statement:
        """Return a statement with the server's spelling of names."""


class LaterStatements:
    """Finds the statements that have changed a table since the position of reading.

    The catalogue describes a table after all of them.
    """

    def __init__(
        self,
        stream: Callable[[Position], Stream],
        log_end: Callable[[], _Place],
        *,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        """Read by streams that end with the log; ``log_end`` returns its present end."""
        self._stream = stream
        self._log_end = log_end
        self._most_bytes = most_bytes
        #: Effects by the place after their statement.
        self._effects: dict[_Place, tuple[Effect, ...]] = {}
        self._read_to: _Place | None = None

    def after(self, place: _Place, table: Name, spell: _Spell) -> list[Effect] | None:
        """Return the effects of later statements on a table; ``None`` if the log is too long.

        Call it after a query of the catalogue, whose answer includes at most these statements.
        Raises the errors of reading.
        """
        self._effects = {at: each for at, each in self._effects.items() if is_behind(at, place)}
        begin = self._read_to
        if begin is None or is_behind(place, begin):
            begin = self._read_to = place
        end = self._log_end()
        is_complete = not is_behind(end, begin) or self._read(begin, end, spell)
        schema, _ = table
        return (
            [
                effect
                for at in sorted(self._effects, key=_order)
                for effect in self._effects[at]
                if effect.table in (table, (schema, ""))
            ]
            if is_complete
            else None
        )

    def _read(self, begin: _Place, end: _Place, spell: _Spell) -> bool:
        """Read from a place to the end of the log; return False if that is too long."""
        file, pos = begin
        octets = 0
        with closing(self._stream(Position(file=file, pos=pos, by_place=True))) as stream:
            for event in stream.events():
                if isinstance(event, LogEvent):
                    pos = event.log_pos
                    octets += len(event.data)
                    if octets > self._most_bytes:
                        self._read_to = file, pos
                        return False
                elif isinstance(event, RotateEvent):
                    file = event.next_binlog
                elif isinstance(event, QueryEvent):
                    schema = event.schema.decode("utf-8", "replace")
                    statement = spell(parse_statement(event.query, schema))
                    if effects := _effects_of(statement):
                        self._effects[file, event.packet.log_pos] = effects
        self._read_to = end
        return True


def _order(place: _Place) -> tuple[int, str, int]:
    # The numbers of files get another digit after 999999.
    file, pos = place
    return len(file), file, pos


def _effects_of(statement: Statement) -> tuple[Effect, ...]:
    if statement.kind == "drop database":
        return (Effect((statement.name, ""), "gone"),)
    if statement.kind != "schema":
        return ()
    return statement.effects or tuple(Effect(table, "same") for table in statement.tables)


def combined(effect: Effect, later: Iterable[Effect]) -> Effect:
    """Return the effect of a statement and of later ones, until the table becomes another one."""
    renamed, retyped = dict(effect.renamed), list(effect.retyped)
    added, dropped = list(effect.added), list(effect.dropped)
    for each in later:
        if each.kind not in ("same", "copy"):
            break
        names = dict(each.renamed)
        known = set(renamed.values())
        renamed = {old: names.get(new, new) for old, new in renamed.items()}
        renamed |= {old: new for old, new in names.items() if old not in known}
        # A dropped column has no new name.
        renamed = {old: new for old, new in renamed.items() if new not in each.dropped}
        retyped = [*(names.get(name, name) for name in retyped), *each.retyped]
        added = [*(names.get(name, name) for name in added), *each.added]
        dropped += each.dropped
    return replace(
        effect,
        renamed=tuple(renamed.items()),
        retyped=tuple(dict.fromkeys(retyped)),
        added=tuple(dict.fromkeys(added)),
        dropped=tuple(dict.fromkeys(dropped)),
    )
