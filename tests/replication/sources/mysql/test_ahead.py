"""Statements that follow in the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from stompkit.replication.sources.mysql._ahead import LaterStatements, combined
from stompkit.replication.sources.mysql._binlog.events import COMMIT, LogEvent
from stompkit.replication.sources.mysql._positions import Position
from stompkit.replication.sources.mysql._reader import Stream
from stompkit.replication.sources.mysql._tables.statements import Effect, Statement

T = ("s", "t")


def spelled(statement: Statement) -> Statement:
    return statement


class Log:
    """A log with commits only."""

    def __init__(self, *ends: int) -> None:
        """Record the positions after the commits."""
        self.ends = ends
        self.begun: list[int] = []

    def stream(self, position: Position) -> Stream:
        """Return the events after a position."""
        self.begun.append(position.pos)
        return cast("Stream", Events([pos for pos in self.ends if pos > position.pos]))

    def end(self) -> tuple[str, int]:
        """Return the end of the log."""
        return "binlog.000001", max(self.ends)


class Events:
    """A stream that ends with its log."""

    def __init__(self, ends: list[int]) -> None:
        """Record the positions after the commits."""
        self.ends = ends

    def events(self) -> Iterator[Any]:
        """Yield the commits."""
        for pos in self.ends:
            yield LogEvent(COMMIT, 0, 1, pos, bytes(40), 40)

    def close(self) -> None:
        """Do nothing."""


def test_the_log_is_read_once_up_to_its_end() -> None:
    log = Log(100, 200, 300)
    later = LaterStatements(log.stream, log.end)
    for pos in (100, 200, 300):
        assert later.after(("binlog.000001", pos), T, spelled) == []
    assert log.begun == [100]
    log.ends += (400,)
    assert later.after(("binlog.000001", 300), T, spelled) == []
    assert log.begun == [100, 300]


def test_of_a_long_log_it_is_not_known_what_follows() -> None:
    log = Log(100, 200, 300, 400)
    later = LaterStatements(log.stream, log.end, most_bytes=79)
    assert later.after(("binlog.000001", 100), T, spelled) is None
    # Reading goes on where it has stopped.
    assert later.after(("binlog.000001", 200), T, spelled) == []
    assert log.begun == [100, 300]


def test_statements_have_one_effect_together() -> None:
    first = Effect(T, "copy", renamed=(("a", "b"), ("x", "y")), retyped=("b",))
    found = combined(
        first,
        [
            Effect(T, "same", added=("n",)),
            Effect(T, "copy", renamed=(("b", "c"), ("k", "l"))),
            Effect(T, "same", dropped=("y",)),
            Effect(T, "gone"),
            Effect(T, "copy", renamed=(("c", "d"),)),
        ],
    )
    assert found == Effect(
        T,
        "copy",
        renamed=(("a", "c"), ("k", "l")),
        retyped=("c",),
        added=("n",),
        dropped=("y",),
    )
