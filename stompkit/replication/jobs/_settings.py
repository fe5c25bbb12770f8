"""What a job does, and how far it is."""

from __future__ import annotations

import os
import re
from datetime import datetime
from glob import escape
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

import msgspec

from stompkit.replication.tables import Tables

__all__ = ["JobProblem", "JobSettings", "JobStatus", "database_of"]

#: What sinks, outboxes and offsets keep in a database is nobody else's business.
_OWN_TABLES: Final = "stompkit_*"


class JobProblem(Exception):
    """A job can't be run as it is described; ``str()`` says what to change."""


class JobSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """What a job does; the names are those of the options of ``stompkit replicate``."""

    source: str = msgspec.field(name="from")
    to: str
    #: What the job is called; its files are named after it. Made of the URLs where it is empty.
    name: str = ""
    #: Where the job keeps how far it is.
    state_dir: str = ""
    #: Patterns of ``schema.table``: what is replicated, and what is not.
    tables: list[str] = []
    exclude: list[str] = []
    exclude_columns: list[str] = []
    #: By patterns of columns.
    masks: dict[str, str] = {}
    #: Of databases: the rows that are there before what changes.
    snapshot: Literal["initial", "never", "only"] = "initial"
    #: End where the source's end was at the beginning.
    once: bool = False
    #: Of PostgreSQL.
    slot: str = "stompkit"
    #: Of PostgreSQL: a publication for all tables, in place of one that names them.
    all_tables: bool = False
    #: Of MySQL and MariaDB: this reader's number, other than that of all servers; 0: a random one.
    server_id: int = 0
    #: To a broker: so many destinations, for so many consumers.
    partitions: int = 1
    max_frame_bytes: int = 1024 * 1024
    #: With a broker that has no receipts, no acknowledgements.
    no_receipts: bool = False
    no_ack: bool = False
    #: From a broker: the name of a durable subscription to a topic.
    durable: str = ""
    prefetch: int = 1000
    #: From a broker: where goes what can't be applied.
    dead_letter: str = ""
    #: What is done about missing changesets: wait, stop or skip.
    gap: Literal["wait", "stop", "skip"] = "wait"
    #: To SQL: changesets in one transaction, tables that are missing, columns that are missing.
    batch: int = 100
    create: bool = False
    evolve: bool = True
    #: To SQL: when foreign keys of the target are looked at; see SqlSink.
    foreign_keys: Literal["deferred", "enforced", "off"] = "deferred"
    #: To SQL: schemas and tables of the target by those of the source; by default the same tables,
    #: in the default schema.
    schema_map: dict[str, str] = {}
    table_map: dict[str, str] = {}
    #: To Redis: what keys begin with, and when rows expire, in seconds.
    namespace: str = "stompkit:cache"
    ttl: float | None = None
    #: To a search index.
    index: str = "{table}"

    @property
    def directory(self) -> Path:
        """Where the job has its files."""
        return Path(self.state_dir or state_directory())

    def selection(self) -> Tables:
        """What is replicated; raises :class:`JobProblem`.

        Of MySQL and MariaDB that is one database, where the URL names it, and nothing else is said.
        """
        database = database_of(self.source)
        everything = [f"{escape(database)}.*"] if database else []
        try:
            return Tables(
                self.tables or everything,
                [*self.exclude, _OWN_TABLES],
                columns_exclude=self.exclude_columns,
                masks=self.masks,
            )
        except ValueError as error:
            raise JobProblem(str(error)) from None


def database_of(source: str) -> str:
    """The database that a URL of MySQL names, if it does; a bad URL is somebody else's to tell."""
    try:
        url = urlsplit(source)
    except ValueError:
        return ""
    return unquote(url.path.strip("/")) if re.match(r"(mysql|mariadb)\b", url.scheme) else ""


class JobStatus(msgspec.Struct, kw_only=True):
    """How far a job is, for people and as JSON."""

    name: str
    source: str
    to: str
    pid: int
    #: ``starting``, ``snapshot``, ``streaming``, ``ended`` or ``failed``.
    phase: str = "starting"
    #: What has failed last, as long as that is not over.
    error: str = ""
    #: Brokers that there is no connection to, without what is secret in their URLs.
    disconnected: list[str] = []
    started: datetime
    updated: datetime
    #: Changesets and changes of rows since the job was started.
    changesets: int = 0
    changes: int = 0
    #: Changesets that the target has not confirmed.
    unconfirmed: int = 0
    #: Where the source is resumed.
    position: str = ""
    #: How old the newest changeset was when it was handed on, in seconds.
    lag_s: float | None = None
    #: Rows of a snapshot by table: how many are done, and about how many there are.
    snapshot: dict[str, tuple[int, int]] = {}
    #: From a broker: repeats that were left out, dead letters, frames that wait for others.
    repeats: int = 0
    dead_letters: int = 0
    held_back: int = 0
    #: From an outbox: rows that wait, and how old the oldest is, in seconds.
    backlog: int = 0
    oldest_s: float | None = None


def state_directory() -> Path:
    """Where the user's programs keep what is to survive: XDG's directory for that."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "stompkit" / "replicate"
