"""Databases that both readers read over TCP, with one table and a position before its rows."""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Final

from blinker import Signal
from sqlalchemy import Engine, create_engine, text

from benchmarks._parts import PARTS, rows
from benchmarks._report import progress
from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.mysql import MysqlPublisher
from stompkit.replication.sources.postgres import PostgresPublisher
from stompkit.replication.sources.publication import Publication
from tests.servers import MySql, PostgreSql, SqlServer

__all__ = ["DATABASES", "Database"]

_HOST: Final = "127.0.0.1"
#: Name of the engine and prefix of its topics: parts of the key of its offsets.
_NAME: Final = "benchmark"
#: Settings of the engine for every database. JSON has no schemas, and decimals are text, as ours.
_SETTINGS: Final = {
    "name": _NAME,
    "topic.prefix": _NAME,
    "offset.storage": "stompkit.debezium.GivenOffsets",
    "offset.flush.interval.ms": "60000",
    "converter.schemas.enable": "false",
    "decimal.handling.mode": "string",
    "tombstones.on.delete": "false",
    "database.hostname": _HOST,
}


class Database(ABC):
    """A server with a database; its rows can be read any number of times."""

    name: str

    def __init__(self, port: int) -> None:
        """Create the server, which listens on ``port``; raises ServerMissing."""
        self._port = port
        self.server: Final = self._make()
        self._url = ""

    def fill(self, count: int, transaction_rows: int) -> None:
        """Create the table, note the position, and insert rows in transactions of that many."""
        database = self.server.new_database()
        self._url = self.server.url(database, (_HOST, self._port))
        engine = create_engine(self._url)
        try:
            PARTS.create(engine)
            self._begin(database, engine)
            made = list(rows(count))
            with engine.connect() as connection:
                for first in range(0, count, transaction_rows):
                    if first % 1000 < transaction_rows:
                        progress(f"{self.name}: {first} of {count} rows are inserted")
                    connection.execute(PARTS.insert(), made[first : first + transaction_rows])
                    connection.commit()
        finally:
            engine.dispose()
        progress()

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """Return the settings of the engine for one run."""

    @abstractmethod
    def publish(self, changesets: Signal) -> Publication:
        """Read all rows by a publisher, and send them to ``changesets``, until all is confirmed."""

    @abstractmethod
    def _make(self) -> SqlServer:
        """Return the server, which is not started."""

    @abstractmethod
    def _begin(self, database: str, engine: Engine) -> None:
        """Note the position from which both readers read."""


class _Postgres(Database):
    """PostgreSQL: both read by pgoutput; each run has a copy of one slot, which is at the begin."""

    name = "postgresql"

    def __init__(self, port: int) -> None:
        """Create the server."""
        super().__init__(port)
        self._database = ""
        self._runs = 0

    def _make(self) -> SqlServer:
        port = self._port

        class Listening(PostgreSql):
            @property
            def socket(self) -> Path:
                return self.directory / f".s.PGSQL.{port}"

            def url(self, database: str, address: tuple[str, int] | None = None) -> str:
                return super().url(database, address or (str(self.directory), port))

            def _command(self) -> list[str]:
                given = [*super()._command(), "-c", f"listen_addresses={_HOST}"]
                return [*given, "-c", f"port={port}"]

        return Listening()

    def _begin(self, database: str, engine: Engine) -> None:
        self._database = database
        with engine.begin() as connection:
            connection.execute(text("CREATE PUBLICATION benchmark FOR TABLE parts"))
        with engine.begin() as connection:
            made = "SELECT pg_create_logical_replication_slot(:slot, 'pgoutput')"
            connection.execute(text(made), {"slot": f"{database}_begin"})

    def _slot(self) -> str:
        """Return a new slot at the begin."""
        self._runs += 1
        slot = f"{self._database}_{self._runs}"
        engine = create_engine(self._url)
        with engine.begin() as connection:
            # A slot of an earlier run would keep the log, and a place.
            connection.execute(
                text(
                    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                    "WHERE NOT active AND slot_name NOT LIKE '%begin'"
                )
            )
        with engine.begin() as connection:
            copy = "SELECT pg_copy_logical_replication_slot(:begin, :slot)"
            connection.execute(text(copy), {"begin": f"{self._database}_begin", "slot": slot})
        engine.dispose()
        return slot

    def settings(self) -> dict[str, str]:
        return _SETTINGS | {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.port": str(self._port),
            "database.user": "postgres",
            "database.password": "unused",
            "database.dbname": self._database,
            "plugin.name": "pgoutput",
            "publication.name": "benchmark",
            "publication.autocreate.mode": "disabled",
            "slot.name": self._slot(),
            # Without offsets, it begins at the position of the slot.
            "snapshot.mode": "no_data",
            "table.include.list": "public.parts",
        }

    def publish(self, changesets: Signal) -> Publication:
        # Each run copies a slot, so the warning about an existing slot does not apply.
        logging.getLogger("stompkit.replication.sources.postgres").setLevel(logging.ERROR)
        slot = self._slot()
        publication = Publication(
            kind="postgresql", tables=Tables(["*.parts"]), changesets=changesets
        )
        dsn = f"host={_HOST} port={self._port} user=postgres dbname={self._database}"
        PostgresPublisher(
            dsn,
            publication,
            slot=slot,
            publication_name="benchmark",
            snapshot="never",
            blocking=False,
        ).run()
        publication.flush()
        return publication


class _MySql(Database):
    """MySQL: both read the binary log from one position in a file."""

    name = "mysql"

    def __init__(self, port: int) -> None:
        """Create the server."""
        super().__init__(port)
        self._database = ""
        self._position = ("", 0)
        self._gtids = ""

    def _make(self) -> SqlServer:
        port = self._port

        class Listening(MySql):
            def _options(self) -> list[str]:
                given = [each for each in super()._options() if each != "--skip-networking"]
                return [*given, f"--bind-address={_HOST}", f"--port={port}"]

        return Listening()

    def _begin(self, database: str, engine: Engine) -> None:
        self._database = database
        with engine.connect() as connection:
            found = connection.execute(text("SHOW BINARY LOG STATUS")).one()
        file, position, _, _, gtids = found
        self._position = (str(file), int(position))
        self._gtids = str(gtids).replace("\n", "")

    def settings(self) -> dict[str, str]:
        file, position = self._position
        begin = {"file": file, "pos": position, "gtids": self._gtids}
        key = json.dumps([_NAME, {"server": _NAME}], separators=(",", ":"))
        return _SETTINGS | {
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "database.port": str(self._port),
            "database.user": "root",
            "database.password": "",
            "database.ssl.mode": "disabled",
            "driver.allowPublicKeyRetrieval": "true",
            "database.server.id": "4242",
            "database.include.list": self._database,
            "table.include.list": f"{self._database}.parts",
            "include.schema.changes": "false",
            "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
            # It reads the definitions of tables again, and begins at the offsets.
            "snapshot.mode": "recovery",
            "offset.given.key": key,
            "offset.given.value": json.dumps(begin),
        }

    def publish(self, changesets: Signal) -> Publication:
        publication = Publication(
            kind="mysql", tables=Tables([f"{self._database}.parts"]), changesets=changesets
        )
        MysqlPublisher(self._url, publication=publication, start=self._position).run()
        publication.flush()
        return publication


#: Databases by name, made for a port.
DATABASES: Final[dict[str, Callable[[int], Database]]] = {
    each.name: each for each in (_Postgres, _MySql)
}
