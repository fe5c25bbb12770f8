"""What is sent by signals, and what can go wrong with it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pymysql

from stompkit.replication.events import RowChange
from stompkit.replication.publishers.mysql._positions import Position
from stompkit.replication.signals import call_receiver, signal

__all__ = ["SendingFailed", "meepo_payload", "send_position", "sending"]

_log: Final = logging.getLogger(__name__)


class SendingFailed(Exception):
    """Somebody has raised who was to take a changeset, or to keep the checkpoint."""

    def __init__(self, error: Exception) -> None:
        """Keep what was raised."""
        self.error = error
        super().__init__(str(error))


@contextmanager
def sending() -> Iterator[None]:
    """Tell errors of those who take changesets from errors of the connection that is read from."""
    try:
        yield
    except (OSError, pymysql.Error) as error:
        raise SendingFailed(error) from error


def meepo_payload(change: RowChange) -> dict[str, Any]:
    """What Meepo sends with the raw signals of a change."""
    if change.action == "update":
        return {"before_values": change.before, "after_values": change.after}
    return {"values": change.before if change.action == "delete" else change.after}


def send_position(position: Position, gtid: str) -> None:
    """Send ``mysql_binlog_pos``; what a receiver raises is logged."""
    sent = signal("mysql_binlog_pos")
    text = str(position)
    for receiver in list(sent.receivers_for(text)) if sent.receivers else ():
        try:
            call_receiver(receiver, text, gtid=gtid)
        except Exception:
            _log.exception("a receiver of mysql_binlog_pos has failed at %s", text)
