"""A connection to PostgreSQL that is made again when it is lost, and that others can abort."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import errors as psycopg_errors
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from stompkit._common.files import reason_of
from stompkit.server.interfaces import StoreError, StoreFullError
from stompkit.server.stores.driver_errors import lacks_room, reason
from stompkit.server.stores.postgresql.arrays import register
from stompkit.server.stores.postgresql.url import PostgresUrl

__all__ = ["AbortedError", "Link", "LostError", "PostgresConnection"]

#: The connection of the driver.
Link: TypeAlias = psycopg.Connection[tuple[Any, ...]]

#: The dialect of SQLAlchemy; the connections do not come from this URL.
_DIALECT: Final = "postgresql+psycopg://"
#: Timeout in seconds of connecting to each host, if the URL sets none.
_CONNECT_S: Final = 10
#: Errors of a server that does not accept writes (any more): another host of the URL may.
_NOT_HERE: Final = (psycopg_errors.ReadOnlySqlTransaction,)
#: Classes of the codes of lost connections, and of servers that stop or start.
_CONNECTION_CLASSES: Final = ("08", "57P")
#: The function of the server that warns if a commit stops waiting for synchronous replicas. The
#: text of the warning depends on the language.
_WAIT_FOR_REPLICAS: Final = "SyncRepWaitForLSN"


class LostError(StoreError):
    """The connection is lost or cannot be made; another attempt may succeed."""


class AbortedError(StoreError):
    """Another thread has ended the use of the connection."""


class PostgresConnection:
    """A connection in autocommit mode. One thread uses it; :meth:`abort` is for any thread.

    All methods raise :class:`StoreError`. No message contains a password, or data of clients.
    """

    def __init__(
        self,
        url: PostgresUrl,
        setup: Sequence[str],
        defaults: Mapping[str, Any] | None = None,
        *,
        kind: str = "store",
    ) -> None:
        """Describe a connection; ``setup`` are the statements with which each one begins.

        ``defaults`` are parameters of libpq that the URL takes precedence over. ``kind`` is a part
        of the name under which PostgreSQL lists the session: ``stompkit-KIND RANDOM``.
        """
        self._parameters = {
            "connect_timeout": _CONNECT_S,
            **(defaults or {}),
            **url.parameters,
            "application_name": f"stompkit-{kind} {token_hex(8)}",
        }
        self._name = url.name
        self._setup = "; ".join(setup)
        self._link: Link | None = None
        self._mutex = threading.Lock()
        #: A second descriptor of the socket, for :meth:`abort`.
        self._socket: socket.socket | None = None
        self._is_aborted = False
        #: True if a commit has not waited for the replicas that it should be on.
        self._is_doubtful = False

    @property
    def name(self) -> str:
        """The URL without its secrets."""
        return self._name

    def allow(self) -> None:
        """Allow the use of the connection, also after it was aborted."""
        self._is_aborted = False

    @contextmanager
    def for_sqlalchemy(self) -> Iterator[Connection]:
        """Open a transaction of SQLAlchemy over a connection of its own."""
        engine = create_engine(
            _DIALECT, creator=lambda: psycopg.connect(**self._parameters), poolclass=NullPool
        )
        try:
            with engine.begin() as connection:
                yield connection
        except DBAPIError as error:
            text = f"the store {self._name} cannot be used: {reason(error.orig)}"
            if _is_lost(error.orig):
                raise LostError(text) from None
            kind = StoreFullError if lacks_room(error.orig) else StoreError
            raise kind(text) from None
        finally:
            engine.dispose()

    def use(self) -> Link:
        """Return the connection, which is made if necessary."""
        link = self._link
        if link is not None and not link.closed:
            return link
        self.drop()
        self._check()
        with self.errors():
            link = psycopg.connect(**self._parameters, autocommit=True)
            register(link)
            link.add_notice_handler(self._noticed)
        with self._mutex:
            self._link = link
            # The driver's own descriptor could already belong to something else.
            self._socket = socket.socket(fileno=os.dup(link.fileno()))
        self._check()
        with self.errors():
            link.execute(self._setup)
        return link

    def check_sessions(self) -> None:
        """Raise StoreError behind a pooler that gives a server's session to several clients.

        Settings, prepared statements and the names of sessions would be those of others.
        """
        link = self.use()
        with self.errors():
            mine = _session_of(link)
            if mine == link.info.backend_pid:
                return  # the server itself has answered
            # While this session is idle, another transaction must not get it.
            with psycopg.connect(**self._parameters) as other:
                is_shared = _session_of(other) == mine or _session_of(link) != mine
        if is_shared:
            raise StoreError(
                f"the store {self._name} is behind a pooler in transaction mode: connect to"
                " PostgreSQL directly, or set pool_mode = session in PgBouncer"
            )

    def is_refused(self) -> bool:
        """Return True if a server answers, and refuses this user, password or database.

        Otherwise no server answers, or it is starting or read-only: a later attempt may succeed.
        """
        conninfo = make_conninfo(**self._parameters).encode()
        if PGconn.ping(conninfo) != Ping.OK:
            return False
        try:
            # Of servers that are read-only, one may be about to be promoted.
            psycopg.connect(**{**self._parameters, "target_session_attrs": "any"}).close()
        except psycopg.Error:
            # Not if it has stopped meanwhile.
            return PGconn.ping(conninfo) == Ping.OK
        return False

    @property
    def is_connected(self) -> bool:
        """True if there is a connection that is not known to be lost."""
        return self._link is not None and not self._link.closed

    def drop(self) -> None:
        """Close the connection, if any; it is made again when it is used."""
        with self._mutex:
            link, self._link = self._link, None
            duplicate, self._socket = self._socket, None
        if duplicate is not None:
            duplicate.close()
        if link is not None:
            link.close()

    def abort(self) -> None:
        """End any call in progress with an error, and refuse all further ones."""
        self._is_aborted = True
        self.interrupt()

    def interrupt(self) -> None:
        """End any call in progress with an error; a further call connects again."""
        with self._mutex:
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translate the driver's errors; LostError if the connection has to be made again.

        A commit is also lost if somebody has cancelled it while it waited for synchronous replicas:
        the server reports it as done, with a warning.
        """
        self._is_doubtful = False
        try:
            with _without_consequences():
                yield
        except psycopg.Error as error:
            text = f"the store {self._name} cannot be used: {reason(error)}"
            link = self._link
            self._check()
            if isinstance(error, _NOT_HERE):
                self.drop()
                raise LostError(text) from None
            if link is None or link.closed:
                raise LostError(text) from None
            if lacks_room(error):
                raise StoreFullError(text) from None
            raise StoreError(text) from None
        except OSError as error:
            raise LostError(f"the store {self._name} cannot be used: {reason_of(error)}") from None
        if self._is_doubtful:
            self.drop()
            raise LostError(f"a commit of the store {self._name} may not be on its replicas")

    def _noticed(self, notice: psycopg_errors.Diagnostic) -> None:
        if notice.source_function == _WAIT_FOR_REPLICAS:
            self._is_doubtful = True

    def _check(self) -> None:
        """Raise AbortedError after :meth:`abort`."""
        if self._is_aborted:
            raise AbortedError(
                f"this broker does not use the store {self._name} any more"
            ) from None


class _Consequences(logging.Filter):
    """Drops the driver's warnings about errors that it ignores after another one.

    The first one is reported as an exception. Other users of the driver keep their warnings.
    """

    def __init__(self) -> None:
        """Drop no warnings of any thread yet."""
        super().__init__()
        self.local = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for a warning to be dropped."""
        is_dropped = getattr(self.local, "is_dropping", False)
        return not (is_dropped and str(record.msg).startswith("error ignored"))


_CONSEQUENCES: Final = _Consequences()
logging.getLogger("psycopg").addFilter(_CONSEQUENCES)


@contextmanager
def _without_consequences() -> Iterator[None]:
    local = _CONSEQUENCES.local
    local.is_dropping = True
    try:
        yield
    finally:
        local.is_dropping = False


def _is_lost(error: BaseException | None) -> bool:
    """Return True if there is no connection any more, or none could be made."""
    if not isinstance(error, psycopg.OperationalError):
        return isinstance(error, _NOT_HERE)
    return error.sqlstate is None or error.sqlstate.startswith(_CONNECTION_CLASSES)


def _session_of(link: Link) -> int:
    """Return the number of the server's session that executes a statement."""
    row = link.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
    assert row is not None
    return int(row[0])
