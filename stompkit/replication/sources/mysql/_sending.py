"""Signals of the MySQL publisher, and errors of sending."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any, Final

import pymysql

from stompkit.replication.model.events import RowChange
from stompkit.replication.model.signals import call_receiver, signal
from stompkit.replication.sources.mysql._positions import Position

__all__ = ["SendingFailedError", "meepo_payload", "send_position", "sending"]

_log: Final = logging.getLogger(__name__)
_POSITIONS: Final = signal("mysql_binlog_pos")


class SendingFailedError(Exception):
    """A receiver of changesets, or the storage of the checkpoint, has raised an exception."""

    def __init__(self, error: Exception) -> None:
        """Store the exception."""
        self.error = error
        super().__init__(str(error))


class _Sending:
    """Context that converts receivers' exceptions; see :data:`sending`."""

    # It costs a small transaction less than a generator.
    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Raise :class:`SendingFailedError` for such an exception."""
        if isinstance(error, (OSError, pymysql.Error)):
            raise SendingFailedError(error) from error


#: Converts receivers' exceptions, to distinguish them from errors of the connection.
sending: Final = _Sending()


def meepo_payload(change: RowChange) -> dict[str, Any]:
    """Return Meepo's payload for the raw signals of a change."""
    if change.action == "update":
        return {"before_values": change.before, "after_values": change.after}
    return {"values": change.before if change.action == "delete" else change.after}


def send_position(position: Position, gtid: str) -> None:
    """Send ``mysql_binlog_pos``; exceptions of receivers are logged."""
    if not _POSITIONS.receivers:
        return
    text = str(position)
    for receiver in list(_POSITIONS.receivers_for(text)):
        try:
            call_receiver(receiver, text, gtid=gtid)
        except Exception:
            _log.exception("a receiver of mysql_binlog_pos has failed at %s", text)
