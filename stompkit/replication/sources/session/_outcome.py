"""The databases' answers to the commits of one transaction."""

from __future__ import annotations

from typing import Final
from weakref import WeakSet

from sqlalchemy import Connection, ExceptionContext, event
from sqlalchemy.engine import Dialect

__all__ = ["Commits"]

#: Connections whose database has refused the last statement.
_REFUSED: Final[WeakSet[Connection]] = WeakSet()
#: Dialects whose errors are noticed: all engines of one share its errors.
_NOTICED: Final[WeakSet[Dialect]] = WeakSet()
_BEGINNINGS: Final = ("commit", "commit_twophase")


class Commits:
    """Commits that were begun on connections, and which of them the database has refused.

    An error of a commit does not mean that nothing is committed. If the connection is lost, the
    database may have done it before. With several databases, some may have committed already.
    """

    def __init__(self) -> None:
        """Start without commits."""
        self._begun: list[Connection] = []

    @property
    def are_possible(self) -> bool:
        """True if a commit was begun that no database has refused."""
        return any(connection not in _REFUSED for connection in self._begun)

    def attach(self, connection: Connection) -> None:
        """Listen to a connection."""
        if connection.dialect not in _NOTICED:
            _NOTICED.add(connection.dialect)
            event.listen(connection.dialect, "handle_error", _failed)
        for name in _BEGINNINGS:
            event.listen(connection, name, self._begin)

    def detach(self, connection: Connection) -> None:
        """Stop listening."""
        for name in _BEGINNINGS:
            event.remove(connection, name, self._begin)

    def _begin(self, connection: Connection, *_: object) -> None:
        _REFUSED.discard(connection)
        self._begun.append(connection)


def _failed(context: ExceptionContext) -> None:
    """Note an error that is the database's answer; others say nothing of what it has done."""
    is_answer = context.sqlalchemy_exception is not None and not context.is_disconnect
    if context.connection is not None and is_answer:
        _REFUSED.add(context.connection)
