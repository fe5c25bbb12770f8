"""Connections to PostgreSQL: what they are made of, and nothing of it in a log.

The driver is psycopg 3. For replication its wrapper of libpq is enough, and says all that the
server says.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import tuple_row

from stompkit.replication.publishers.postgres._values import SETTINGS

__all__ = ["Connection", "Dsn", "format_lsn", "is_unchecked", "parse_lsn"]

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

#: How long a host may take to answer, in seconds, unless the DSN says otherwise.
_CONNECT_TIMEOUT_S: Final = 10
_SCHEME: Final = re.compile(r"^postgres(?:ql)?(?:\+\w+)?://")
_SECRETS: Final = ("password", "sslpassword")


class Dsn:
    """Where a database is, and who asks; :func:`repr` has no secrets."""

    def __init__(self, text: str) -> None:
        """Read a URL as SQLAlchemy or libpq has it, or libpq's ``name=value`` pairs.

        Raises ``ValueError``, without the text, in which there may be a password.
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
        """What it consists of, but for passwords."""
        shown = (
            f"{name}={'***' if name in _SECRETS else value}"
            for name, value in self._parameters.items()
        )
        return f"<Dsn {' '.join(shown)}>"

    @property
    def server(self) -> str:
        """Host, port and database, for people."""
        host = self._parameters.get("host") or self._parameters.get("hostaddr") or "localhost"
        port = self._parameters.get("port", "5432")
        return f"{host}:{port}/{self._parameters.get('dbname', '')}"

    def connect(self, *, for_replication: bool = False) -> Connection:
        """Connect, with every statement in a transaction of its own.

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
    """Whether the text of the database may be any octets: it is in ``SQL_ASCII``.

    Where a client asks for UTF-8 its server ends at the first text that is something else.
    """
    return connection.info.parameter_status("server_encoding") == "SQL_ASCII"


def format_lsn(lsn: int) -> str:
    """A place in the log, as PostgreSQL writes it: ``16/B374D848``."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """The reverse of :func:`format_lsn`; raises ``ValueError``."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)
