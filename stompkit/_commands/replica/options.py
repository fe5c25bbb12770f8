"""Shared parts of the ``stompkit replica`` commands: options, file, and replica access."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, create_engine, inspect, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from stompkit._commands.replica.rules import rules_of
from stompkit._commands.replica.subcommand import ReplicaUsageError
from stompkit._common.files import describe
from stompkit._common.secrets import SecretError, mask_url, resolve
from stompkit._common.settings import ConfigurationError, read_toml
from stompkit.replica.nodes import Node, known_node
from stompkit.replica.replica import Replica
from stompkit.replica.rules import Rules
from stompkit.replica.settings import ReplicaSettings
from stompkit.replica.store import Store

__all__ = [
    "Setup",
    "add_database",
    "add_json",
    "add_settings",
    "opened",
    "setup_of",
]

#: SQLAlchemy driver names by kind of URL.
_DRIVERS: Final = {
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
_SETTINGS: Final = frozenset(each.name for each in fields(ReplicaSettings))
#: Keys of a file beside the settings of a replica.
_OWN: Final = ("db", "tables", "documents", "rules", "author", "metrics_port")
#: Table pattern of the collections of documents.
_DOCUMENTS: Final = "doc.*"


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Settings from the command line and the file."""

    db: str = field(repr=False)
    settings: ReplicaSettings = field(repr=False)
    rules: Rules
    author: str
    metrics_port: int
    has_trunk: bool
    """True if a trunk was specified."""


# Options. Values missing on the command line are taken from the file.


def add_database(parser: argparse.ArgumentParser) -> None:
    """Add the options that locate a database and its replica."""
    group = parser.add_argument_group(
        "the database",
        "env:NAME takes a URL from an environment variable, file:PATH from the first line of a"
        " file.",
        argument_default=argparse.SUPPRESS,
    )
    add = group.add_argument
    add(
        "--db",
        metavar="URL",
        help="URL of the database: sqlite:///FILE, postgresql://... or mysql://...",
    )
    add("--config", type=Path, metavar="FILE", help="file with --db and all settings, TOML")
    add(
        "--tables",
        action="append",
        metavar="GLOB",
        help="replicate only these tables; repeatable (default: all)",
    )
    add("--documents", action="store_true", help="with --tables: replicate documents as well")
    add(
        "--exclude",
        action="append",
        metavar="GLOB",
        help="do not replicate these tables; repeatable",
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add all options that are settings of a replica."""
    add_database(parser)
    group = parser.add_argument_group("the replica", argument_default=argparse.SUPPRESS)
    add = group.add_argument
    yes_or_no = argparse.BooleanOptionalAction
    add("--branch-id", metavar="NAME", help="unique name of this node (default: a random name)")
    add("--trunk-id", metavar="NAME", help="common name of all nodes (default: 0A)")
    add(
        "--replication-hosts",
        metavar="HOSTS",
        help="brokers: HOST:PORT,HOST:PORT or stomp://LOGIN:PASSCODE@HOST:PORT, also "
        "env:NAME and file:PATH",
    )
    add("--replication-channel", metavar="NAME", help="topic that all nodes use")
    add("--save-history", action=yes_or_no, help="keep all changesets (default: yes)")
    add(
        "--send-stomp-ack",
        action=yes_or_no,
        help="acknowledge messages; disable for brokers without ACK (default: yes)",
    )
    add(
        "--receipts",
        action=yes_or_no,
        help="request receipts; disable for brokers without receipts (default: yes)",
    )
    add(
        "--durable",
        action=yes_or_no,
        help="use durable subscriptions, so that the broker keeps messages for this node "
        "while it is offline",
    )
    add(
        "--direction",
        choices=("both", "send", "receive"),
        help="direction of replication (default: both)",
    )
    add(
        "--retention",
        metavar="TEXT",
        help="history to keep, such as '30 days' or '10000 changesets'",
    )
    add(
        "--keep-unseen",
        action=yes_or_no,
        help="keep changesets that other nodes have not received (default: yes)",
    )
    add("--signing-key", metavar="FILE", help="file of the key that signs changes; see keygen")
    add(
        "--trust",
        action="append",
        type=_pair,
        metavar="NAME=KEY",
        help="accept only changes signed with this public key of this node; repeatable",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option for JSON output."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError("this is NAME=VALUE")
    return name, value


def setup_of(options: argparse.Namespace) -> Setup:
    """Return the settings; raises :class:`ReplicaUsageError`. Adds the secrets to ``options``."""
    given = vars(options)
    path: Path | None = given.get("config")
    found = {} if path is None else _file(path)
    where = "" if path is None else f"{path}: "
    found |= {name: given[name] for name in ("db", *_SETTINGS) if name in given}
    if "tables" in given or "documents" in given:
        found |= {"tables": given.get("tables", []), "documents": "documents" in given}
    if "trust" in given:
        others = found.get("trusted_keys")
        others = others if isinstance(others, dict) else {}
        found["trusted_keys"] = {**others, **dict(given["trust"])}
    relays = found.get("relays")
    listed = relays if isinstance(relays, list) else []
    for table in (found, *(each for each in listed if isinstance(each, dict))):
        for name in {"db", "replication_hosts"} & table.keys():
            if isinstance(table[name], str):
                table[name] = _resolved(name, table[name])
                given.setdefault("secrets", []).append(table[name])
    own: dict[str, Any] = {name: found.pop(name) for name in _OWN if name in found}
    if not isinstance(own.get("db"), str):
        raise ReplicaUsageError(
            "--db is missing: the URL of a database, such as sqlite:///notes.db"
        )
    try:
        settings = ReplicaSettings.of({**found, **_selection(own, found)})
        rules = rules_of(own.get("rules", {}))
    except (TypeError, ValueError) as problem:
        raise ReplicaUsageError(f"{where}{problem}") from None
    return Setup(
        db=own["db"],
        settings=settings,
        rules=rules,
        author=str(given.get("author") or own.get("author", "")),
        metrics_port=_port(given.get("metrics_port") or own.get("metrics_port", 0)),
        has_trunk="trunk_id" in found,
    )


def _port(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 65_536:
        raise ReplicaUsageError(f"metrics_port is the number of a port, not {value!r}")
    return value


def _selection(own: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the selection of tables as settings of a replica."""
    tables = own.get("tables", [])
    if not isinstance(tables, list):
        raise ReplicaUsageError("tables is a list of patterns")
    wanted = [*found.get("include", ()), *tables]
    if own.get("documents"):
        wanted.append(_DOCUMENTS)
    return {"include": wanted}


def _file(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except ConfigurationError as error:
        raise ReplicaUsageError(str(error)) from None


def _resolved(name: str, text: str) -> str:
    try:
        return resolve(text)
    except SecretError as error:
        raise ReplicaUsageError(f"--{name.replace('_', '-')}: {error}") from None


# The replica.


@contextmanager
def opened(
    options: argparse.Namespace, *, is_made: bool = False
) -> Iterator[tuple[Replica, Setup]]:
    """Open the replica of a database; creates none unless ``is_made``.

    Raises :class:`ReplicaUsageError`, and SQLAlchemy's errors.
    """
    setup = setup_of(options)
    engine = _engine(setup.db, is_made=is_made)
    try:
        node = _node(engine)
        if node is None and not is_made:
            raise ReplicaUsageError(
                f"{mask_url(setup.db)} is no replica yet: `stompkit replica create` makes it one"
            )
        more: dict[str, Any] = {} if setup.has_trunk or node is None else {"trunk_id": node.trunk}
        try:
            replica = Replica(engine, settings=setup.settings, rules=setup.rules, **more)
        except (ValueError, TypeError) as problem:
            raise ReplicaUsageError(str(problem)) from None
        try:
            yield replica, setup
        finally:
            replica.close()
    finally:
        engine.dispose()


def _engine(db: str, *, is_made: bool) -> Engine:
    try:
        url = make_url(db)
        driver = _DRIVERS.get(url.drivername)
        engine = create_engine(url.set(drivername=driver) if driver else url)
    except (ArgumentError, NoSuchModuleError):
        raise ReplicaUsageError(
            f"--db {mask_url(db)!r} is not the URL of a database, such as sqlite:///notes.db or"
            " postgresql://USER:PASSWORD@HOST/DB"
        ) from None
    if url.get_backend_name() == "sqlite" and not is_made:
        _check_file(url.database)
    return engine


def _check_file(file: str | None) -> None:
    """Raise ReplicaUsageError for a file that SQLite would create, and for one it cannot read."""
    try:
        if not (file and Path(file).exists()):
            name = file or "file"
            raise ReplicaUsageError(
                f"there is no {name}. Check --db; `stompkit replica create` creates it."
            )
        with open(file, "rb"):
            pass
    except OSError as error:
        raise ReplicaUsageError(f"--db: {describe(error)}") from None


def _node(engine: Engine) -> Node | None:
    store = Store(engine)
    if not inspect(engine).has_table(store.metadata.sorted_tables[0].name):
        return None
    with store.reading() as reader:
        return known_node(reader)
