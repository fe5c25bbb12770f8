"""The stream of the log: one connection, which is discarded after any error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import (
    BeginLoadQueryEvent,
    BinLogEvent,
    ExecuteLoadQueryEvent,
    FormatDescriptionEvent,
    GtidEvent,
    HeartbeatLogEvent,
    MariadbGtidEvent,
    NotImplementedEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from stompkit.replication.sources.mysql._binlog.packets import LogConnection
from stompkit.replication.sources.mysql._dsn import Dsn
from stompkit.replication.sources.mysql._errors import MysqlError, OffsetLostError, StreamError
from stompkit.replication.sources.mysql._positions import Position

__all__ = ["DisconnectedError", "Stream", "problem_of"]

_EVENTS: Final = (
    BeginLoadQueryEvent,
    DeleteRowsEvent,
    ExecuteLoadQueryEvent,
    FormatDescriptionEvent,
    GtidEvent,
    HeartbeatLogEvent,
    MariadbGtidEvent,
    NotImplementedEvent,
    PartialUpdateRowsEvent,
    QueryEvent,
    RotateEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
    XAPrepareEvent,
    XidEvent,
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


class _Unwanted:
    """Tables that the library skips before it parses their columns.

    The library first asks if a table's name is to be ignored, and then, if it is not, asks for its
    schema. This needs both.
    """

    def __init__(self, wants: Callable[[str, str], bool]) -> None:
        self._wants = wants
        self._table = ""

    def __contains__(self, table: str) -> bool:
        self._table = table
        return False

    @property
    def schemas(self) -> _UnwantedSchemas:
        return _UnwantedSchemas(lambda schema: self._wants(schema, self._table))


class _UnwantedSchemas:
    def __init__(self, wants: Callable[[str], bool]) -> None:
        self._wants = wants

    def __contains__(self, schema: str) -> bool:
        return not self._wants(schema)


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
        wants: Callable[[str, str], bool],
    ) -> None:
        """Configure; the first event opens the connection.

        At the end of the log, ``is_blocking`` waits for more.
        """
        self._at = str(position)
        self._is_blocking = is_blocking
        self._dsn = dsn
        self._connections = 0
        unwanted = _Unwanted(wants)
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
            ignored_tables=unwanted,
            ignored_schemas=unwanted.schemas,
            # An altered table has another number in the log; see also ``forget_tables``.
            freeze_schema=True,
            # Makes SHOW SLAVE HOSTS list this reader.
            report_slave=("stompkit", "", "", 0),
            slave_heartbeat=heartbeat_s,
            enable_logging=False,
            pymysql_wrapper=self._connect,
            **begin,
        )

    def events(self) -> Iterator[BinLogEvent]:
        """Yield the events, until the log ends.

        Raises :class:`DisconnectedError`, :class:`OffsetLostError`, and :class:`MysqlError` for
        errors that a retry does not resolve.
        """
        fetch = self._reader.fetchone
        while True:
            try:
                event = fetch()
            except DisconnectedError:
                raise
            except (pymysql.Error, OSError) as error:
                raise problem_of(error, self._at) from None
            except Exception as error:
                where = f"{self._reader.log_file}:{self._reader.log_pos}"
                raise StreamError(
                    f"the event behind this cannot be read ({type(error).__name__}: {error})", where
                ) from error
            if event is None:
                if self._is_blocking:
                    raise DisconnectedError(
                        "the server has ended the log, as it does when it shuts down"
                    )
                return
            if isinstance(event, (RotateEvent, FormatDescriptionEvent)):
                self._forget_tables()
            yield event

    def close(self) -> None:
        """Close the connection."""
        try:
            self._reader.close()
        except (pymysql.Error, OSError):
            # It was lost already.
            pass

    def _forget_tables(self) -> None:
        """Forget table numbers, which restart with the server, in another file.

        The library does the same, except after a server was killed without a final event.
        """
        self._reader.table_map.clear()

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
        return LogConnection(**settings)
