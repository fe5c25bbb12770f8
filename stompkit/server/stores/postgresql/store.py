"""The store in PostgreSQL. Needs the extras ``sql`` and ``postgresql``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from psycopg import Error as DriverError
from psycopg.types.numeric import Int8

from stompkit._common.retry import Backoff
from stompkit.server.interfaces import (
    FencedError,
    LaneState,
    Operation,
    StoredMessage,
    StoreError,
)
from stompkit.server.stores.changes import Changes, lanes_of
from stompkit.server.stores.postgresql import statements
from stompkit.server.stores.postgresql.arrays import Numbers
from stompkit.server.stores.postgresql.batch import Statement, statements_of
from stompkit.server.stores.postgresql.connection import Link, LostError, PostgresConnection
from stompkit.server.stores.postgresql.stamps import Stamps
from stompkit.server.stores.postgresql.url import parsed
from stompkit.server.stores.record import unpack_text
from stompkit.server.stores.schema import prepare

__all__ = ["PostgresStore", "Term"]

_T = TypeVar("_T")

#: Attempts of a batch whose connection is lost each time. A batch that makes the server fail must
#: not be tried for ever.
_ATTEMPTS: Final = 3
#: Delays in seconds between attempts to connect.
_FIRST_DELAY_S: Final = 0.05
_LONGEST_DELAY_S: Final = 1.0
#: SQLSTATE of a division by zero: see :data:`statements.FENCE`.
_FENCED: Final = "22012"


class Term(NamedTuple):
    """The time for which a broker has the lease of the store.

    ``instance`` identifies its process. While the database does not answer, the store keeps trying
    for ``patience_s`` seconds. ``lost`` is called with the reason before a :class:`FencedError` is
    raised.
    """

    epoch: int
    instance: str
    patience_s: float
    lost: Callable[[str], object]


class PostgresStore:
    """Keeps messages in tables of PostgreSQL whose names begin with ``stompkit_``.

    One broker may use them at a time. If two do, the first one to write continues. The other gets
    :class:`FencedError` until it reopens the store. With a term, the broker that has the lease of
    the store continues, and the other one cannot even open it.

    A batch is one round trip. If the connection is lost meanwhile, the store connects again, and
    reads from the stamp of the database if the batch was committed. If not, it repeats the batch.
    """

    def __init__(self, url: str, *, synchronous: bool = True, term: Term | None = None) -> None:
        """Describe a store in the database at ``url``, in the format of libpq or SQLAlchemy.

        With ``synchronous`` off, applied changes survive a crash of the server only once
        :meth:`sync` has returned; the database stays consistent. Raises ValueError for an invalid
        URL.
        """
        durability = statements.SYNCHRONOUS if synchronous else statements.NOT_SYNCHRONOUS
        setup = (*statements.SETTINGS, durability, statements.END_LOST)
        defaults = {} if term is None else _defaults(term)
        self._connection = PostgresConnection(parsed(url), setup, defaults)
        self._synchronous = synchronous
        self._fence = statements.DURABLE_FENCE if synchronous else statements.FENCE
        self._term = term
        self._patience_s = 0.0 if term is None else term.patience_s
        self._stamps: Stamps | None = None
        #: The lanes that are known to exist. Their numbers of messages and bytes are out of date.
        self._lanes: dict[int, LaneState] = {}
        self._aborted = threading.Event()

    def check_connection(self) -> None:
        """Connect to the server of a closed store, and change nothing."""
        self._connection.allow()
        try:
            self._connection.use()
        finally:
            self._connection.drop()

    def open(self) -> None:
        """Open or create the store; raises StoreError for an unknown version."""
        if self._stamps is not None:
            raise StoreError("the store is open already")
        connection = self._connection
        self._aborted.clear()
        connection.allow()
        self._lanes.clear()
        try:
            if self._term is None:
                connection.check_sessions()  # otherwise the lease has done so
            with connection.for_sqlalchemy() as transaction:
                prepare(transaction, connection.name)
            link = connection.use()
            with connection.errors():
                self._stamps = self._claim(link)
        except BaseException:
            connection.drop()
            raise

    def _claim(self, link: Link) -> Stamps:
        """Return the stamp of the store; with a term, first replace it, which excludes others."""
        term = self._term
        if term is None:
            self._check_not_leased(link)
            [stamp] = _row(link.execute(statements.STAMP))
            return Stamps(0, stamp)
        link.execute(statements.END_OTHERS)
        with link.transaction():
            # A crash of the server must not undo this.
            link.execute(statements.LOCAL_SYNC)
            [old] = _row(link.execute(statements.LOCKED_STAMP))
            stamps = Stamps(term.epoch, old)
            stamp = stamps.new()
            link.execute(statements.SET_STAMP, {"stamp": stamp})
            # Last, so that renewals of the lease do not wait for a commit of the previous owner.
            there = {"epoch": term.epoch, "instance": term.instance}
            if link.execute(statements.HOLDS_LEASE, there).fetchone() is None:
                raise self._fenced()
        stamps.only(stamp)
        return stamps

    def _check_not_leased(self, link: Link) -> None:
        """Raise StoreError if a broker has a lease that is not over."""
        [exists] = _row(link.execute(statements.HAS_LEASES))
        owner = link.execute(statements.LEASE_OWNER).fetchone() if exists else None
        if owner is not None:
            raise StoreError(
                f"the store {self._connection.name} is in use by the broker {owner[0]}, which has a"
                ' lease: stop it, or set lease = "database" in [high_availability] here, too'
            )

    def lanes(self) -> list[LaneState]:
        """Return all lanes, by number."""
        rows = self._read(lambda link: link.execute(statements.LANES).fetchall())
        states = list(map(_lane, rows))
        self._lanes = {state.lane: state for state in states}
        return states

    def records(self) -> Mapping[str, bytes]:
        """Return all records."""
        rows = self._read(lambda link: link.execute(statements.RECORDS).fetchall())
        return {unpack_text(name): value for name, value in rows}

    def apply(self, operations: Sequence[Operation]) -> None:
        """Apply all operations in order, or none.

        If the connection is lost during the commit and cannot be re-established, the outcome is
        unknown. The message of the :class:`StoreError` says so.
        """
        concerned = lanes_of(operations)
        changes = Changes(self._known(concerned))
        for operation in operations:
            changes.add(operation)
        self._commit(list(statements_of(changes)))
        for number in concerned:
            lane = changes.lanes.get(number)
            if lane is None:
                self._lanes.pop(number, None)
            else:
                self._lanes[number] = lane.result(0, 0)

    def _known(self, numbers: Sequence[int]) -> list[LaneState]:
        """Return the states of those of the lanes that exist, if nobody else has written."""
        missing = [number for number in numbers if number not in self._lanes]
        if missing:
            wanted = {"lanes": Numbers(missing)}

            def rows(link: Link) -> list[tuple[Any, ...]]:
                found = link.execute(statements.SOME_LANES, wanted).fetchall()
                [stamp] = _row(link.execute(statements.STAMP))
                if not self._use().has(stamp):
                    raise self._fenced()
                return found

            self._lanes.update((state.lane, state) for state in map(_lane, self._read(rows)))
        return [self._lanes[number] for number in numbers if number in self._lanes]

    def read(
        self, lane: int, after: int, max_messages: int, max_octets: int
    ) -> Sequence[StoredMessage]:
        """Return the first messages of a lane with a place above ``after``, in order."""
        wanted = {
            "lane": Int8(lane),
            "after": Int8(after),
            "messages": Int8(max(max_messages, 1)),
            "octets": Int8(max_octets),
        }

        def rows(link: Link) -> list[tuple[Any, ...]]:
            return link.cursor(binary=True).execute(statements.READ, wanted).fetchall()

        return [
            StoredMessage(place, count, size, expires, due, unpack_text(id), lines, body)
            for place, count, size, expires, due, id, lines, body in self._read(rows)
        ]

    def sync(self) -> None:
        """Flush everything applied so far, so that it survives a crash of the machine."""
        self._use()
        if not self._synchronous:
            self._commit([(statements.LOCAL_SYNC, {})])

    def close(self) -> None:
        """Sync and disconnect; does nothing if not open."""
        if self._stamps is not None:
            try:
                self.sync()
            finally:
                self._stamps = None
                self._connection.drop()

    def abort(self) -> None:
        """End the use of the store, from any thread: calls fail with StoreError at once."""
        self._aborted.set()
        self._connection.abort()

    # Attempts.

    def _read(self, ask: Callable[[Link], _T]) -> _T:
        """Return the result of a query, which is repeated once if the connection is lost."""
        self._use()
        connection = self._connection
        is_old = connection.is_connected
        with self._patience() as later:
            while True:
                try:
                    link = connection.use()
                    with connection.errors():
                        return ask(link)
                except LostError:
                    if not is_old and not later():
                        raise
                    is_old = False

    def _commit(self, batch: Sequence[Statement]) -> None:
        """Execute statements in one transaction, unless another broker has written."""
        stamps = self._use()
        stamps.begin()
        lost: LostError | None = None
        for _ in range(_ATTEMPTS):
            link = self._connected()
            stamp = stamps.new()
            try:
                self._send(link, stamp, batch)
            except LostError as error:
                lost = error
                stamps.tried(stamp, is_done=True)
                if self._was_done():
                    return
            else:
                stamps.only(stamp)
                return
        assert lost is not None  # there was an attempt
        raise lost

    def _connected(self) -> Link:
        with self._patience() as later:
            while True:
                try:
                    return self._connection.use()
                except LostError:
                    if not later():
                        raise

    def _send(self, link: Link, stamp: str, batch: Iterable[Statement]) -> None:
        """Send the statements of a transaction, and wait for its end."""
        fence = {"stamp": stamp, "known": self._use().known}
        with self._connection.errors():
            try:
                with link.pipeline(), link.cursor() as cursor:
                    cursor.execute(self._fence, fence, prepare=True)
                    for statement, values in batch:
                        cursor.execute(statement, values, prepare=True)
            except DriverError as error:
                if error.sqlstate == _FENCED:
                    raise self._fenced() from None
                raise

    def _was_done(self) -> bool:
        """Return True if the commit was done whose connection was lost.

        The stamp is replaced for that. If this is committed, so is what it shows: also on
        replicas, which the lost commit may not have waited for.
        """
        with self._patience() as later:
            while True:
                try:
                    link = self._connection.use()
                    with self._connection.errors():
                        return self._resolve(link)
                except LostError:
                    if not later():
                        self._give_up()

    def _resolve(self, link: Link) -> bool:
        stamps = self._use()
        stamp = stamps.new()
        with link.transaction():
            if self._synchronous:
                link.execute(statements.LOCAL_SYNC)
            # Waits for the end of the transaction whose connection was lost.
            [found] = _row(link.execute(statements.LOCKED_STAMP))
            if not stamps.has(found):
                raise self._fenced()
            is_done = stamps.is_done(found)
            link.execute(statements.SET_STAMP, {"stamp": stamp})
            stamps.tried(stamp, is_done=is_done)
        stamps.only(stamp)
        return is_done

    def _give_up(self) -> NoReturn:
        text = (
            f"the connection to the store {self._connection.name} was lost during a commit, and"
            " cannot be made again: whether the change was made is not known"
        )
        raise StoreError(text) if self._term is None else self._lost(self._term, text)

    @contextmanager
    def _patience(self) -> Iterator[Callable[[], bool]]:
        """Yield a function that waits before another attempt; it returns False if time is over."""
        end_s = time.monotonic() + self._patience_s
        backoff = Backoff(_FIRST_DELAY_S, _LONGEST_DELAY_S)

        def later() -> bool:
            delay_s = backoff.fail()
            if time.monotonic() + delay_s > end_s:
                return False
            return not self._aborted.wait(delay_s)

        yield later

    def _use(self) -> Stamps:
        """Return the stamps; raises StoreError unless the store is open."""
        if self._stamps is None:
            raise StoreError("the store is not open")
        return self._stamps

    def _fenced(self) -> FencedError:
        name = self._connection.name
        if self._term is not None:
            return self._lost(self._term, f"another broker has taken over the store {name}")
        return FencedError(
            f"somebody else has written to the store {name} since it was opened here: another"
            " broker, or an import. Open it again, with no other broker running"
        )

    def _lost(self, term: Term, reason: str) -> FencedError:
        term.lost(reason)
        return FencedError(reason)


def _defaults(term: Term) -> dict[str, Any]:
    """Return parameters of libpq by which it soon notices that a server is gone."""
    return {
        "connect_timeout": max(2, int(term.patience_s / 3)),
        "tcp_user_timeout": int(term.patience_s * 1000 / 2),
        "target_session_attrs": "read-write",
    }


def _lane(row: Sequence[Any]) -> LaneState:
    lane, queue, *numbers = row
    return LaneState(lane, unpack_text(queue), *numbers)


def _row(cursor: Any) -> tuple[Any, ...]:
    """Return the only row."""
    [row] = cursor.fetchall()
    return tuple(row)
