"""Settings and status of a job."""

from __future__ import annotations

import os
import re
from datetime import datetime
from glob import escape
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

import msgspec

from stompkit.replication.model.tables import Tables

__all__ = ["JobError", "JobSettings", "JobStatus", "database_of"]

#: Internal tables of sinks, outboxes and offsets, which are never replicated.
_OWN_TABLES: Final = "stompkit_*"


class JobError(Exception):
    """A job cannot run with these settings; ``str()`` says which to change."""


class JobSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Settings of a job; the names are those of the options of ``stompkit replicate``."""

    source: str = msgspec.field(name="from")
    to: str
    #: Name of the job and of its files. Derived from the URLs if empty.
    name: str = ""
    #: Directory for the job's state.
    state_dir: str = ""
    #: Patterns of ``schema.table`` to replicate and to exclude.
    tables: list[str] = []
    exclude: list[str] = []
    exclude_columns: list[str] = []
    #: Masks by patterns of columns.
    masks: dict[str, str] = {}
    #: For databases: copy existing rows before changes.
    snapshot: Literal["initial", "never", "only"] = "initial"
    #: True to end at the position where the source ended at the start.
    once: bool = False
    #: For PostgreSQL: replication slot.
    slot: str = "stompkit"
    #: For PostgreSQL: a publication for all tables, instead of one that lists them.
    all_tables: bool = False
    #: For MySQL and MariaDB: this reader's number, different from all servers; 0: random.
    server_id: int = 0
    #: To a broker: number of destinations, for the same number of consumers.
    partitions: int = 1
    max_frame_bytes: int = 1024 * 1024
    #: For brokers without receipts: no acknowledgements.
    no_receipts: bool = False
    no_ack: bool = False
    #: From a broker: name of a durable subscription to a topic.
    durable: str = ""
    prefetch: int = 1000
    #: From a broker: dead-letter destination for changesets that cannot be applied.
    dead_letter: str = ""
    #: Policy for missing changesets: wait, stop or skip.
    gap: Literal["wait", "stop", "skip"] = "wait"
    #: To SQL: changesets per transaction; handling of missing tables and of missing columns.
    batch: int = 100
    create: bool = False
    evolve: bool = True
    #: To SQL: when the target checks foreign keys; see SqlSink.
    foreign_keys: Literal["deferred", "enforced", "off"] = "deferred"
    #: To SQL: target schemas and tables by source schemas and tables; by default the same tables,
    #: in the default schema.
    schema_map: dict[str, str] = {}
    table_map: dict[str, str] = {}
    #: To Redis: prefix of keys, and time in seconds until rows expire.
    namespace: str = "stompkit:cache"
    ttl: float | None = None
    #: To a search index: name of the index.
    index: str = "{table}"

    @property
    def directory(self) -> Path:
        """Directory of the job's files."""
        return Path(self.state_dir or state_directory())

    def selection(self) -> Tables:
        """Return the selected tables; raises :class:`JobError`.

        For MySQL and MariaDB, the default is the database in the URL, if there is one.
        """
        database = database_of(self.source)
        everything = [f"{escape(database)}.*"] if database else []
        try:
            return Tables(
                self.tables or everything,
                self.exclude,
                columns_exclude=self.exclude_columns,
                masks=self.masks,
                always_exclude=[_OWN_TABLES],
            )
        except ValueError as error:
            raise JobError(str(error)) from None


def database_of(source: str) -> str:
    """Return the database in a MySQL URL, if any; an invalid URL is reported elsewhere."""
    try:
        url = urlsplit(source)
    except ValueError:
        return ""
    return unquote(url.path.strip("/")) if re.match(r"(mysql|mariadb)\b", url.scheme) else ""


class JobStatus(msgspec.Struct, kw_only=True):
    """Status of a job, for display and as JSON."""

    name: str
    source: str
    to: str
    pid: int
    #: ``starting``, ``snapshot``, ``streaming``, ``ended`` or ``failed``.
    phase: str = "starting"
    #: Last error, until it is resolved.
    error: str = ""
    #: Disconnected brokers of a running job, without the secrets of their URLs.
    disconnected: list[str] = []
    started: datetime
    updated: datetime
    #: Number of changesets and of row changes since the job started.
    changesets: int = 0
    changes: int = 0
    #: Number of changesets that the target has not confirmed.
    unconfirmed: int = 0
    #: Position from which the source resumes.
    position: str = ""
    #: Age in seconds of the newest changeset when it was passed on.
    lag_s: float | None = None
    #: Rows of an incomplete snapshot by table: completed, and estimated total.
    snapshot: dict[str, tuple[int, int]] = {}
    #: From a broker: skipped duplicates, dead letters, and frames that wait for missing ones.
    repeats: int = 0
    dead_letters: int = 0
    held_back: int = 0
    #: From an outbox: number of waiting rows, and age of the oldest in seconds.
    backlog: int = 0
    oldest_s: float | None = None


def state_directory() -> Path:
    """Return the XDG state directory for jobs of the user."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "stompkit" / "replicate"
