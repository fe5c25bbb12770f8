"""The address of a server, and the login."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

__all__ = ["Dsn"]

_SCHEMES: Final = ("mysql", "mariadb")
_TEXTS: Final = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_key_password")
_SWITCHES: Final = ("ssl_disabled", "ssl_verify_cert", "ssl_verify_identity")
_SWITCH: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
#: Connection timeout in seconds, unless the DSN has one.
_CONNECT_S: Final = 10
#: Limits of a session in seconds: long times for writing and for an idle connection, because a slow
#: target must not end a snapshot.
_LIMITS: Final = "net_write_timeout = 86400, wait_timeout = 604800"
#: No limits for statements and idle transactions of MariaDB (true) and of MySQL.
_OWN_LIMITS: Final = {
    True: "max_statement_time = 0, idle_transaction_timeout = 0,"
    " idle_readonly_transaction_timeout = 0",
    False: "max_execution_time = 0",
}


@dataclass(frozen=True)
class Dsn:
    """A server and a user; neither ``repr()`` nor ``str()`` shows secrets."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    unix_socket: str = ""
    #: Other parameters, with PyMySQL's names.
    more: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, text: str) -> Dsn:
        """Parse ``mysql://user:password@host:3306/?unix_socket=/path&ssl_ca=/path``.

        ``mariadb`` is equivalent to ``mysql``, and ``+driver`` may follow, as in SQLAlchemy. User
        and password are percent-encoded. A database is allowed and ignored, because the replicated
        tables are configured separately. Raises ``ValueError``, which does not repeat the DSN.
        """
        parts = urlsplit(text)
        if parts.scheme.partition("+")[0] not in _SCHEMES:
            raise ValueError("a DSN of MySQL or MariaDB begins with mysql:// or mariadb://")
        try:
            port = parts.port or 3306
        except ValueError:
            raise ValueError("the port of the DSN is not a number up to 65535") from None
        unix_socket = ""
        more: dict[str, Any] = {"connect_timeout": _CONNECT_S}
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            if name == "unix_socket":
                unix_socket = value
            elif name == "connect_timeout":
                if not value.isdecimal() or not int(value):
                    raise ValueError("connect_timeout in the DSN is not a number of seconds")
                more[name] = int(value)
            elif name in _TEXTS:
                more[name] = value
            elif name in _SWITCHES:
                if value.lower() not in _SWITCH:
                    raise ValueError(f"{name} in the DSN is neither true nor false")
                more[name] = _SWITCH[value.lower()]
            elif name != "charset":
                # The publisher itself chooses the character set of the connection.
                raise ValueError(f"the DSN has the parameter {name}, which is not known")
        return cls(
            host=parts.hostname or "localhost",
            port=port,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            unix_socket=unix_socket,
            more=more,
        )

    @property
    def server(self) -> str:
        """Display name of the server."""
        return self.unix_socket or f"{self.host}:{self.port}"

    def settings(self) -> dict[str, Any]:
        """Return PyMySQL's arguments; a new dict for each call, because libraries change it."""
        settings: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "charset": "utf8mb4",
            **self.more,
        }
        if self.unix_socket:
            settings["unix_socket"] = self.unix_socket
            if not any(name.startswith("ssl_") for name in self.more):
                # A local connection needs no TLS, for which the driver would load certificates.
                settings["ssl_disabled"] = True
        return settings

    def probe(self) -> None:
        """Check that the server's port or socket is open; raises OSError.

        PyMySQL does not close a Unix socket after a refused connection.
        """
        if self.unix_socket:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(self.more["connect_timeout"])
                probe.connect(self.unix_socket)

    def connect(self, **more: Any) -> Connection[Cursor]:
        """Open a connection with autocommit and without limits of time.

        Raises the errors of PyMySQL, and OSError.
        """
        self.probe()
        connection = pymysql.connect(**{**self.settings(), "autocommit": True, **more})
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT VERSION() LIKE '%MariaDB%'")
                row = cursor.fetchone()
                own = _OWN_LIMITS[row is not None and bool(int(row[0]))]
                cursor.execute(f"SET SESSION {_LIMITS}, {own}")
        except BaseException:
            connection.close()
            raise
        return connection
