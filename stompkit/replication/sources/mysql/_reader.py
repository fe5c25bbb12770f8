"""The stream of the log: one connection, which is discarded after any error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import (
    BeginLoadQueryEvent,
    BinLogEvent,
    ExecuteLoadQueryEvent,
    FormatDescriptionEvent,
    HeartbeatLogEvent,
    NotImplementedEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
)

from stompkit.replication.sources.mysql._binlog.events import LogEvent
from stompkit.replication.sources.mysql._binlog.packets import EventSkippedError, LogConnection
from stompkit.replication.sources.mysql._dsn import Dsn
from stompkit.replication.sources.mysql._errors import MysqlError, OffsetLostError, StreamError
from stompkit.replication.sources.mysql._positions import Position

__all__ = ["DisconnectedError", "Stream", "problem_of"]

_EVENTS: Final = (
    BeginLoadQueryEvent,
    ExecuteLoadQueryEvent,
    FormatDescriptionEvent,
    HeartbeatLogEvent,
    NotImplementedEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
)

# Error codes of servers.
_DENIED: Final = frozenset({1044, 1045, 1130, 1142, 1227, 1698})
_READING_FAILED: Final = 1236
_SAME_SERVER_ID: Final = 4052
#: Errors that a retry does not resolve.
_NOT_TRANSIENT: Final = (
    pymysql.err.DataError,
    pymysql.err.NotSupportedError,
    pymysql.err.ProgrammingError,
)
#: Number of missed heartbeats after which a connection is considered dead.
_SILENT_HEARTBEATS: Final = 10


class DisconnectedError(Exception):
    """The connection is lost or could not be made; a retry may succeed."""


def problem_of(error: Exception, what: str) -> Exception:
    """Return the exception for a driver's error: Disconnected for a retry, or a lasting problem."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    if code == _SAME_SERVER_ID or "same server_uuid/server_id" in text:
        return StreamError(
            "another reader has connected with the same server_id: give each its own", what
        )
    if code == _READING_FAILED:
        if "max_allowed_packet" in text:
            return StreamError(
                f"an event is too large for the server to send ({text}): raise its "
                "max_allowed_packet",
                what,
            )
        return OffsetLostError(
            f"the server cannot go on at {what} ({text}): take a new snapshot with empty offsets"
        )
    if code in _DENIED:
        return MysqlError(f"the server refuses ({code}: {text}): see what the user is granted")
    if isinstance(error, _NOT_TRANSIENT):
        return MysqlError(f"the server does not understand what it is asked ({code}: {text})")
    return DisconnectedError(text)


class Stream:
    """The events of the log from a position on."""

    def __init__(
        self,
        dsn: Dsn,
        position: Position,
        *,
        is_mariadb: bool,
        server_id: int,
        is_blocking: bool,
        heartbeat_s: float,
    ) -> None:
        """Configure; the first event opens the connection.

        At the end of the log, ``is_blocking`` waits for more.
        """
        self._at = str(position)
        self._is_blocking = is_blocking
        self._dsn = dsn
        self._connections = 0
        self._log: LogConnection | None = None
        settings = dsn.settings()
        settings["read_timeout"] = max(10.0, heartbeat_s * _SILENT_HEARTBEATS)
        if is_mariadb and position.gtid and not position.by_place:
            begin: dict[str, Any] = {"is_mariadb": True, "auto_position": position.gtid}
        else:
            # Without the first of these the library starts at the beginning of the file.
            begin = {"resume_stream": True, "log_file": position.file, "log_pos": position.pos}
        self._reader = BinLogStreamReader(
            settings,
            server_id,
            ctl_connection_settings=dsn.settings(),
            blocking=is_blocking,
            only_events=_EVENTS,
            filter_non_implemented_events=False,
            # Makes SHOW SLAVE HOSTS list this reader.
            report_slave=("stompkit", "", "", 0),
            slave_heartbeat=heartbeat_s,
            enable_logging=False,
            pymysql_wrapper=self._connect,
            **begin,
        )

    def events(self) -> Iterator[LogEvent | BinLogEvent]:
        """Yield the events, until the log ends.

        Raises :class:`DisconnectedError`, :class:`OffsetLostError`, and :class:`MysqlError` for
        errors that a retry does not resolve.
        """
        fetch = self._reader.fetchone
        last: LogEvent | BinLogEvent | None = None
        while True:
            try:
                log = self._log
                event: LogEvent | BinLogEvent | None = None if log is None else log.take()
                if event is None:
                    event = fetch()
            except EventSkippedError:
                continue
            except DisconnectedError:
                raise
            except (pymysql.Error, OSError) as error:
                raise problem_of(error, self._at) from None
            except Exception as error:
                pos = last.log_pos if isinstance(last, LogEvent) else self._reader.log_pos
                raise StreamError(
                    f"the event behind this cannot be read ({type(error).__name__}: {error})",
                    f"{self._reader.log_file}:{pos}",
                ) from error
            if event is None:
                if self._is_blocking:
                    raise DisconnectedError(
                        "the server has ended the log, as it does when it shuts down"
                    )
                return
            last = event
            yield event

    def close(self) -> None:
        """Close the connection."""
        try:
            self._reader.close()
        except (pymysql.Error, OSError):
            # It was lost already.
            pass

    def _connect(self, **settings: Any) -> Any:
        """Open one of the library's two connections; refuse its own reconnects.

        The library would resume from its first position, or in the middle of a transaction.
        """
        self._connections += 1
        if self._connections > 2:
            raise DisconnectedError("the connection is lost")
        self._dsn.probe()
        # The library has an older name for this than the driver.
        if "db" in settings:
            settings["database"] = settings.pop("db")
        made = LogConnection(**settings)
        if self._log is None:
            # The library opens that of the log first, and then one to query the catalogue.
            self._log = made
        return made
