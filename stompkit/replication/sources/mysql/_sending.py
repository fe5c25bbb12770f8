"""Signals of the MySQL publisher, and errors of sending."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pymysql

from stompkit.replication.model.events import RowChange
from stompkit.replication.model.signals import call_receiver, signal
from stompkit.replication.sources.mysql._positions import Position

__all__ = ["SendingFailedError", "meepo_payload", "send_position", "sending"]

_log: Final = logging.getLogger(__name__)


class SendingFailedError(Exception):
    """A receiver of changesets, or the storage of the checkpoint, has raised an exception."""

    def __init__(self, error: Exception) -> None:
        """Store the exception."""
        self.error = error
        super().__init__(str(error))


@contextmanager
def sending() -> Iterator[None]:
    """Convert receivers' exceptions, to distinguish them from errors of the connection."""
    try:
        yield
    except (OSError, pymysql.Error) as error:
        raise SendingFailedError(error) from error


def meepo_payload(change: RowChange) -> dict[str, Any]:
    """Return Meepo's payload for the raw signals of a change."""
    if change.action == "update":
        return {"before_values": change.before, "after_values": change.after}
    return {"values": change.before if change.action == "delete" else change.after}


def send_position(position: Position, gtid: str) -> None:
    """Send ``mysql_binlog_pos``; exceptions of receivers are logged."""
    sent = signal("mysql_binlog_pos")
    text = str(position)
    for receiver in list(sent.receivers_for(text)) if sent.receivers else ():
        try:
            call_receiver(receiver, text, gtid=gtid)
        except Exception:
            _log.exception("a receiver of mysql_binlog_pos has failed at %s", text)
