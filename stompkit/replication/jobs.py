"""Replication jobs: from one URL to another, as ``stompkit replicate`` runs them.

=========================================  ======================================================
from
``mysql://``, ``mariadb://``               the binary log of a server
``postgresql://``                          logical replication of a database
``outbox+sqlite://``, ``outbox+...``       the outbox table of a database
``stomp://``, ``stomps://``                changesets from a broker
to
``stomp://``, ``stomps://``                a broker
``sqlite://``, ``postgresql://``,          tables of an SQL database
``mysql://``, ``mariadb://``
``redis://``, ``rediss://``, ``unix://``   a cache in Redis
``opensearch+http://``, ``...+https://``,  a search index
``elasticsearch+http://``, ...
``print``, ``print:json``                  standard output
=========================================  ======================================================
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal, Protocol
from urllib.parse import unquote, urlsplit

import msgspec
from sqlalchemy import Engine, create_engine, make_url

from stompkit.replication.consumer import Consumer
from stompkit.replication.events import Changeset
from stompkit.replication.feeder import Feeder, FeederClosed
from stompkit.replication.link import BrokerUrl, Link, LinkClosed
from stompkit.replication.offsets import FileOffsets
from stompkit.replication.publication import Publication
from stompkit.replication.signals import emit
from stompkit.replication.sinks import Sink
from stompkit.replication.sinks.signals import SignalSink, SignalsStopped
from stompkit.replication.subscribers.printing import print_sub
from stompkit.replication.subscribers.stomp import StompSub, stomp_sub
from stompkit.replication.tables import Tables

__all__ = ["Job", "JobProblem", "JobSettings", "JobStatus", "masked"]

_log: Final = logging.getLogger(__name__)

_BROKERS: Final = ("stomp", "stomps")
_REDIS: Final = ("redis", "rediss", "unix")
_SEARCH: Final = (
    "opensearch+http",
    "opensearch+https",
    "elasticsearch+http",
    "elasticsearch+https",
)
#: What sinks, outboxes and offsets keep in a database is nobody else's business.
_OWN_TABLES: Final = "stompkit_*"
#: How SQLAlchemy calls the driver that each kind of URL is for.
_DRIVERS: Final = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
#: How often a target is tried again by a job that is to end.
_RETRIES: Final = 3
#: How long a target is waited for in the end, in seconds: the source, which keeps the checkpoint,
#: has waited before.
_CLOSE_S: Final = 2.0
#: Of each URL, in the name of a job.
_NAME_CHARACTERS: Final = 60
#: ``HOST``, ``HOST:PORT`` and several of them: no part of a login.
_HOSTS: Final = re.compile(
    r"(?:(?:[^:,\[\]]*|\[[^\]]*\])(?::\d*)?)(?:,(?:[^:,\[\]]*|\[[^\]]*\])(?::\d*)?)*"
)


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
    #: To Redis: what keys begin with, and when rows expire, in seconds.
    namespace: str = "stompkit:cache"
    ttl: float | None = None
    #: To a search index.
    index: str = "{table}"

    @property
    def directory(self) -> Path:
        """Where the job has its files."""
        return Path(self.state_dir or _state_directory())

    def selection(self) -> Tables:
        """What is replicated; raises :class:`JobProblem`."""
        try:
            return Tables(
                self.tables,
                [*self.exclude, _OWN_TABLES],
                columns_exclude=self.exclude_columns,
                masks=self.masks,
            )
        except ValueError as error:
            raise JobProblem(str(error)) from None


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


#: Adds what it knows to a status.
_Fill = Callable[[JobStatus], None]


def masked(url: str) -> str:
    """A URL without what is secret in it, also where a password should have been encoded."""
    scheme, found, rest = url.partition("://")
    if not found:
        return url
    authority, slash, more = rest.partition("/")
    if "@" not in authority and "@" in more and not _HOSTS.fullmatch(authority):
        # There is a slash in the password.
        user, _, more = rest.rpartition("@")
        authority, slash, more = f"{user}@{more.partition('/')[0]}", *more.partition("/")[1:]
    user, at, hosts = authority.rpartition("@")
    login, colon, _ = user.partition(":")
    more = re.sub(r"(?i)((?:passw\w*|passcode|secret|token|key)=)[^&]*", r"\1***", more)
    return f"{scheme}://{login}{colon and ':***'}{at}{hosts}{slash}{more}"


def _secrets(url: str) -> Iterator[str]:
    """What of a URL is secret, as it stands there and as it is meant."""
    rest = url.partition("://")[2]
    user, at, _ = rest.partition("/")[0].rpartition("@")
    found = [user.partition(":")[2]] if at else []
    found += re.findall(r"(?i)(?:passw\w*|passcode|secret|token)=([^&]+)", rest)
    for each in found:
        yield each
        yield unquote(each)


class _Publisher(Protocol):
    """What reads a database; :meth:`run` ends by itself, or after :meth:`stop`."""

    def run(self) -> None: ...

    def stop(self) -> None: ...


def _selected(tables: Tables, changeset: Changeset) -> Changeset:
    """What is replicated of a changeset, as it may be seen."""
    changes = tuple(
        tables.shape(change)
        for change in changeset.changes
        if tables.wants(change.schema, change.table)
    )
    return msgspec.structs.replace(changeset, changes=changes)


class _SelectingSink:
    """A sink that is given what is replicated, and nothing else."""

    def __init__(self, sink: Sink, tables: Tables) -> None:
        self._tables = tables
        self._sink = sink
        self.last = sink.last
        self.skip = sink.skip
        self.close = sink.close

    def apply(self, changesets: Sequence[Changeset]) -> None:
        """Apply what is replicated; an empty changeset is a number all the same."""
        self._sink.apply([_selected(self._tables, each) for each in changesets])


class _Counted:
    """Sends the signals of changesets, and counts them."""

    def __init__(self, tables: Tables, stop: threading.Event) -> None:
        self._tables = tables
        self._stop = stop
        self.changesets = self.changes = 0
        self.lag_s: float | None = None

    def publish(self, changeset: Changeset) -> Future[Any] | None:
        """Send the signals of what is replicated of a changeset."""
        changeset = _selected(self._tables, changeset)
        try:
            futures = emit(changeset)
        except (FeederClosed, LinkClosed):
            if not self._stop.is_set():
                raise
            # It is left in the outbox, and the relay waits for those before it for a while.
            return Future()
        self.changesets += 1
        self.changes += len(changeset.changes)
        self.lag_s = (datetime.now(UTC) - changeset.timestamp).total_seconds()
        # A job has one target; whoever else hears has nothing to wait for.
        return futures[0] if futures else None


@dataclass(slots=True)
class _Source:
    """What a job reads from, once it is open."""

    run: Callable[[], None]
    stop: Callable[[], None]
    fill: _Fill


class Job:
    """Reads from one place and writes to another until it is stopped."""

    def __init__(self, settings: JobSettings) -> None:
        """Look at the settings, and connect to nothing; raises :class:`JobProblem`."""
        self._settings = settings
        self._tables = settings.selection()
        if settings.create and settings.source.startswith("outbox+"):
            raise JobProblem(
                "--create: an outbox does not tell what columns tables have; make the tables"
            )
        if settings.once and settings.source.startswith(_BROKERS):
            raise JobProblem("--once is for databases: a broker does not say where its end is")
        self._source_scheme = _scheme(settings.source, "from", _is_source)
        self._to_scheme = _scheme(settings.to, "to", _is_target)
        brokers = [
            _broker(url, option)
            for url, option in ((settings.source, "from"), (settings.to, "to"))
            if url.startswith(tuple(f"{scheme}://" for scheme in _BROKERS))
        ]
        _check(settings, brokers)
        self.name: Final = settings.name or _name(settings)
        if not re.fullmatch(r"[\w.-]+", self.name):
            raise JobProblem(f"the name {self.name!r} is to name files: letters, digits, - . and _")
        self._directory = settings.directory
        self._started = datetime.now(UTC)
        self._phase = "starting"
        self._error = ""
        self._last: JobStatus | None = None
        self._fill: _Fill = lambda status: None
        self._links: list[tuple[str, Link]] = []
        self._stop = threading.Event()
        self._stop_source: Callable[[], None] = lambda: None
        #: Have targets wait for nothing any more.
        self._stop_targets: list[Callable[[], None]] = []
        #: What keeps a target from taking anything ever.
        self._failure: BaseException | None = None

    @property
    def state_path(self) -> Path:
        """The file with the checkpoint, for sources that are resumed by one."""
        return self._directory / f"{self.name}.json"

    @property
    def status_path(self) -> Path:
        """Where a running job writes its status."""
        return self._directory / f"{self.name}.status.json"

    def run(self) -> None:
        """Run until it has ended or :meth:`stop` is called; in the caller's thread.

        Raises :class:`JobProblem`, and whatever the source or the target raises when it can't go
        on.
        """
        with ExitStack() as stack:
            try:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                source = self._open(stack)
                self._fill, self._stop_source = source.fill, source.stop
                self._phase = "streaming"
                self._run(source)
            except BaseException as error:
                self._phase = "failed"
                self._error = self.without_secrets(str(error) or type(error).__name__)
                raise
            else:
                self._phase = "ended"
            finally:
                # What comes next closes all that could be asked.
                self._last = self.status()

    def stop(self) -> None:
        """Have :meth:`run` return soon; from any thread, more than once."""
        self._stop.set()
        self._stop_source()
        for stop in self._stop_targets:
            stop()

    def status(self) -> JobStatus:
        """How far it is, or was in the end; from any thread."""
        if self._last is not None:
            return self._last
        status = JobStatus(
            name=self.name,
            source=masked(self._settings.source),
            to=masked(self._settings.to),
            pid=os.getpid(),
            phase=self._phase,
            error=self._error,
            started=self._started,
            updated=datetime.now(UTC),
        )
        status.disconnected = [url for url, link in self._links if not link.is_connected]
        self._fill(status)
        if self._phase == "streaming" and any(done < of for done, of in status.snapshot.values()):
            status.phase = "snapshot"
        return status

    def without_secrets(self, text: str) -> str:
        """A text without the URLs of the job, and without the passwords in them."""
        for url in (self._settings.source, self._settings.to):
            text = text.replace(url, masked(url))
            for secret in _secrets(url):
                if secret:
                    text = text.replace(secret, "***")
        return text

    def _run(self, source: _Source) -> None:
        try:
            if not self._stop.is_set():
                source.run()
        except (FeederClosed, LinkClosed, SignalsStopped):
            # Of what could not be handed on any more, all comes again.
            if self._failure is None and not self._stop.is_set():
                raise
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: BaseException) -> None:
        """End, since a target takes nothing any more; a source that is quiet would not notice."""
        self._failure = error
        self.stop()

    def _watch(self, url: str, link: Link) -> None:
        """Have the status tell of a connection, and the job end when that has given up."""

        def closed(done: Future[None]) -> None:
            error = done.exception()
            if error is not None:
                self._fail(LinkClosed(f"{masked(url)}: {error}"))

        self._links.append((masked(url), link))
        self._stop_targets.append(link.stop)
        link.closed.add_done_callback(closed)

    # What it is made of.

    def _open(self, stack: ExitStack) -> _Source:
        if self._source_scheme in _BROKERS:
            return self._consumer(stack)
        if self._source_scheme.startswith("outbox+"):
            return self._relay(stack)
        return self._publisher(stack)

    def _publisher(self, stack: ExitStack) -> _Source:
        """Read a database; targets hear by signals."""
        settings = self._settings
        publication = Publication(
            FileOffsets(self.state_path),
            kind="postgresql" if self._source_scheme == "postgresql" else "mysql",
            name=self.name,
            server=urlsplit(settings.source).hostname or "",
            tables=self._tables,
        )
        make = self._postgres if self._source_scheme == "postgresql" else self._mysql
        publisher, fill_more = make(publication)

        def fill(status: JobStatus) -> None:
            status.changesets = publication.published
            status.changes = publication.changes
            status.unconfirmed = publication.unconfirmed
            status.position = publication.position
            status.lag_s = publication.lag_s
            fill_more(status)

        self._hear(stack)
        return _Source(publisher.run, publisher.stop, fill)

    def _postgres(self, publication: Publication) -> tuple[_Publisher, _Fill]:
        from stompkit.replication.publishers.postgres import PostgresPublisher

        settings = self._settings
        progress: dict[str, tuple[int, int]] = {}

        def tell(table: str, done: int, estimate: int) -> None:
            progress[table] = (done, estimate)

        def fill(status: JobStatus) -> None:
            status.snapshot = dict(progress)

        publisher = PostgresPublisher(
            settings.source,
            publication,
            slot=settings.slot,
            publication_name=settings.slot,
            snapshot=settings.snapshot,
            announce=True,
            blocking=not settings.once,
            on_progress=tell,
        )
        return publisher, fill

    def _mysql(self, publication: Publication) -> tuple[_Publisher, _Fill]:
        from stompkit.replication.publishers.mysql import MysqlPublisher

        settings = self._settings
        publisher = MysqlPublisher(
            settings.source,
            publication=publication,
            server_id=settings.server_id or None,
            snapshot=settings.snapshot,
            announce=True,
            blocking=not settings.once,
        )

        def fill(status: JobStatus) -> None:
            progress = publisher.progress
            status.snapshot = {} if progress is None else {"all tables": progress}

        return publisher, fill

    def _hear(self, stack: ExitStack) -> None:
        """Open the target so that it hears signals."""
        settings = self._settings
        if self._to_scheme in _BROKERS:
            sub = self._stomp_sub()
            stack.callback(sub.close, _CLOSE_S)
            self._watch(settings.to, sub.link)
        elif self._to_scheme == "print":
            stack.callback(self._printer().close)
        else:
            sink = stack.enter_context(self._sink())
            # Who waits for an end shall not wait for ever.
            retries = _RETRIES if settings.once else None
            feeder = Feeder(
                sink,
                batch=settings.batch,
                retries=retries,
                on_failure=self._tell,
                on_applied=self._recover,
                on_end=self._fail,
            )
            stack.callback(feeder.close, _CLOSE_S)
            self._stop_targets.append(feeder.stop)

    def _consumer(self, stack: ExitStack) -> _Source:
        """Read a broker; targets are sinks, or hear by signals that a sink sends."""
        settings = self._settings
        url = _broker(settings.source, "from")
        sink: Sink
        if self._to_scheme in (*_BROKERS, "print"):
            self._hear(stack)
            sink = signals = SignalSink()
            self._stop_targets.append(signals.stop)
        else:
            sink = stack.enter_context(self._sink())
        more = {"connect_headers": {"client-id": settings.durable}} if settings.durable else {}
        link = stack.enter_context(url.link(receipts=not settings.no_receipts, **more))
        self._watch(settings.source, link)
        consumer = Consumer(
            link,
            url.destination,
            _SelectingSink(sink, self._tables),
            ack=not settings.no_ack,
            durable=settings.durable or None,
            batch=settings.batch,
            prefetch=settings.prefetch,
            dead_letter=settings.dead_letter or None,
            retries=None,
            gap=settings.gap,
            on_applied=self._recover,
            on_problem=lambda problem: self._tell(problem.text),
        )

        def fill(status: JobStatus) -> None:
            seen = consumer.status()
            status.changesets = seen.applied
            status.changes = seen.changes
            status.repeats = seen.repeats
            status.dead_letters = seen.dead_letters
            status.held_back = seen.held_back
            status.lag_s = seen.lag_s
            status.position = ", ".join(f"{origin}: {n}" for origin, n in seen.last.items())

        return _Source(partial(consumer.run, self._stop), consumer.stop, fill)

    def _relay(self, stack: ExitStack) -> _Source:
        """Publish what is in an outbox; targets hear by signals."""
        from stompkit.replication.publishers.relay import OutboxRelay

        self._hear(stack)
        engine = _engine(self._settings.source.removeprefix("outbox+"))
        stack.callback(engine.dispose)
        counted = _Counted(self._tables, self._stop)
        relay = OutboxRelay(engine, counted.publish)

        def run() -> None:
            if self._settings.once:
                while relay.run_once(stop=self._stop) and not self._stop.is_set():
                    pass
                owner = relay.status().lease_owner
                if not relay.status().is_leading and owner is not None:
                    raise JobProblem(f"the outbox is published by another relay, {owner}")
            else:
                relay.run(self._stop)

        def fill(status: JobStatus) -> None:
            status.changesets, status.changes = counted.changesets, counted.changes
            status.lag_s = counted.lag_s
            try:
                seen = relay.status()
            except Exception as error:
                status.error = self.without_secrets(f"the outbox can't be read: {error}")
                return
            status.position = f"{seen.origin}: {seen.last_sequence}" if seen.origin else ""
            status.backlog = seen.backlog
            status.oldest_s = seen.oldest_age_s

        stack.callback(relay.close)
        return _Source(run, lambda: None, fill)

    # Targets.

    def _stomp_sub(self) -> StompSub:
        settings = self._settings
        return stomp_sub(
            settings.to,
            receipts=not settings.no_receipts,
            partitions=settings.partitions,
            max_body_bytes=settings.max_frame_bytes,
        )

    def _printer(self) -> Any:
        is_json = self._settings.to == "print:json"
        return print_sub(None, format="json" if is_json else "text")

    @contextmanager
    def _sink(self) -> Iterator[Sink]:
        settings = self._settings
        sink: Sink
        engine: Engine | None = None
        if self._to_scheme in _REDIS:
            from stompkit.replication.sinks.cache import RedisSink

            sink = RedisSink(settings.to, namespace=settings.namespace, ttl_s=settings.ttl)
        elif self._to_scheme in _SEARCH:
            from stompkit.replication.sinks.search import SearchSink

            sink = SearchSink(settings.to.partition("+")[2], index=settings.index)
        else:
            from stompkit.replication.sinks.sql import SqlSink

            engine = _engine(settings.to)
            sink = SqlSink(engine, create=settings.create, evolve=settings.evolve)
        try:
            yield sink
        finally:
            sink.close()
            if engine is not None:
                engine.dispose()

    def _tell(self, problem: object) -> None:
        """Have the status show what people should know."""
        self._error = self.without_secrets(str(problem))

    def _recover(self, changesets: Sequence[Changeset]) -> None:
        """Have the status tell no more of what is over."""
        self._error = ""


# URLs.


def _is_source(scheme: str) -> bool:
    databases = ("mysql", "mariadb", "postgresql")
    outboxes = tuple(f"outbox+{name}" for name in _DRIVERS)
    return scheme in (*databases, *outboxes, *_BROKERS)


def _is_target(scheme: str) -> bool:
    return scheme in (*_DRIVERS, *_REDIS, *_SEARCH, *_BROKERS, "print")


def _scheme(url: str, option: str, knows: Callable[[str], bool]) -> str:
    """What a URL is for, without the driver that SQLAlchemy lets one name."""
    if option == "to" and url in ("print", "print:json"):
        return "print"
    scheme, found, _ = url.partition("://")
    plain = scheme
    for name in _DRIVERS:
        if scheme.removeprefix("outbox+").startswith(f"{name}+"):
            plain = scheme[: scheme.index(name) + len(name)]
    if not found or not knows(plain):
        raise JobProblem(
            f"--{option} is a URL that begins with "
            + (
                "mysql://, mariadb://, postgresql://, stomp://, or outbox+ and one of SQLAlchemy"
                if option == "from"
                else "stomp://, sqlite://, postgresql://, mysql://, mariadb://, redis://, "
                "opensearch+http://, elasticsearch+http://, or it is print or print:json"
            )
            + f"; {masked(url)!r} does not"
        )
    return plain


def _broker(url: str, option: str) -> BrokerUrl:
    try:
        parsed = BrokerUrl.parse(url)
    except ValueError as error:
        raise JobProblem(f"--{option}: {error}") from None
    if not parsed.destination:
        raise JobProblem(
            f"--{option} {masked(url)!r} names no destination: stomp://HOST:PORT/queue/NAME"
        )
    return parsed


def _engine(url: str) -> Engine:
    parsed = make_url(url)
    driver = _DRIVERS.get(parsed.drivername)
    return create_engine(parsed.set(drivername=driver) if driver else parsed)


def _check(settings: JobSettings, brokers: Sequence[BrokerUrl]) -> None:
    """Refuse what would do something else than it says; raises :class:`JobProblem`."""
    is_from_broker = settings.source.startswith(_BROKERS)
    if min(settings.partitions, settings.max_frame_bytes, settings.batch, settings.prefetch) < 1:
        raise JobProblem("--partitions, --max-frame-bytes, --batch and --prefetch are at least 1")
    if settings.partitions > 1 and not settings.to.startswith(_BROKERS):
        raise JobProblem(
            "--partitions is for a job that sends to a broker; each of their destinations, "
            "NAME.0, NAME.1 and so on, is read by a job of its own"
        )
    if len(brokers) == 2:
        source, target = brokers
        if source.destination == target.destination and set(source.hosts) & set(target.hosts):
            raise JobProblem("--to is where --from reads: it would go round for ever")
    for option, is_given in (("durable", settings.durable), ("dead-letter", settings.dead_letter)):
        if is_given and not is_from_broker:
            raise JobProblem(f"--{option} is for a job that reads a broker")
    if settings.durable and brokers[0].destination.startswith("/queue/"):
        raise JobProblem("--durable is for topics: a queue keeps what nobody has read anyway")
    if settings.dead_letter and settings.dead_letter == brokers[0].destination:
        raise JobProblem("--dead-letter is where --from reads: it would go round for ever")


def _name(settings: JobSettings) -> str:
    """Of the URLs, without what is secret."""
    ends = (masked(settings.source), masked(settings.to))
    names = [re.sub(r"[^\w.]+", "-", each).strip("-") for each in ends]
    short = "--".join(each[:_NAME_CHARACTERS] for each in names)
    if max(map(len, names)) <= _NAME_CHARACTERS:
        return short
    # Two jobs with names of one beginning may not go on at each other's checkpoint.
    return f"{short}--{blake2b(' '.join(ends).encode(), digest_size=4).hexdigest()}"


def _state_directory() -> Path:
    """Where the user's programs keep what is to survive: XDG's directory for that."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "stompkit" / "replicate"
