"""Connections to PostgreSQL, whose secrets are never logged.

The driver is psycopg 3. For replication its wrapper of libpq is sufficient, and returns all
messages of the server.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import tuple_row

from stompkit.replication.sources.postgres._values import SETTINGS

__all__ = ["Connection", "Dsn", "format_lsn", "is_unchecked", "parse_lsn"]

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

#: Timeout in seconds for connecting to a host, unless the DSN has one.
_CONNECT_TIMEOUT_S: Final = 10
_SCHEME: Final = re.compile(r"^postgres(?:ql)?(?:\+\w+)?://")
_SECRETS: Final = ("password", "sslpassword")


class Dsn:
    """Address of a database, and the login; :func:`repr` has no secrets."""

    def __init__(self, text: str) -> None:
        """Parse a URL of SQLAlchemy or libpq, or libpq's ``name=value`` pairs.

        Raises ``ValueError``, without the text, which may contain a password.
        """
        try:
            found = conninfo_to_dict(_SCHEME.sub("postgresql://", text))
        except psycopg.ProgrammingError:
            raise ValueError(
                "this is no DSN of PostgreSQL: postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
                "with special characters as %XX"
            ) from None
        self._parameters = {name: str(value) for name, value in found.items() if value is not None}

    def __repr__(self) -> str:
        """Show the parameters without passwords."""
        shown = (
            f"{name}={'***' if name in _SECRETS else value}"
            for name, value in self._parameters.items()
        )
        return f"<Dsn {' '.join(shown)}>"

    @property
    def server(self) -> str:
        """Host, port and database, for display."""
        host = self._parameters.get("host") or self._parameters.get("hostaddr") or "localhost"
        port = self._parameters.get("port", "5432")
        return f"{host}:{port}/{self._parameters.get('dbname', '')}"

    def connect(self, *, for_replication: bool = False) -> Connection:
        """Connect in autocommit mode.

        Raises :class:`psycopg.OperationalError`.
        """
        parameters = {
            "connect_timeout": str(_CONNECT_TIMEOUT_S),
            "fallback_application_name": "stompkit",
            **self._parameters,
            "client_encoding": "UTF8",
        }
        if for_replication:
            parameters["replication"] = "database"
        connection = psycopg.Connection.connect(
            make_conninfo(**parameters),
            autocommit=True,
            prepare_threshold=None,
            row_factory=tuple_row,
        )
        try:
            connection.execute("; ".join(SETTINGS).encode())
        except BaseException:
            connection.close()
            raise
        return connection


def is_unchecked(connection: Connection) -> bool:
    """Return True if the database's text may be any bytes: its encoding is ``SQL_ASCII``.

    If a client requests UTF-8, the server aborts at the first text that is invalid.
    """
    return connection.info.parameter_status("server_encoding") == "SQL_ASCII"


def format_lsn(lsn: int) -> str:
    """Return a log position in PostgreSQL's form: ``16/B374D848``."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Return the log position for its text; raises ``ValueError``."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)
