"""Which of several relays of an outbox is the one that publishes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from sqlalchemy import Connection, Engine, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from stompkit.replication.publishers.outbox_tables import OutboxTables, database_clock

__all__ = ["Lease", "LeaseLost", "OutboxProblem", "State"]


class LeaseLost(Exception):
    """Another relay has taken over."""


class OutboxProblem(ValueError):
    """An outbox that is another's."""


@dataclass(frozen=True, slots=True)
class State:
    """What the one row says that all relays share."""

    origin: str
    last_sequence: int


class Lease:
    """The right to publish, for some seconds from when it was taken or renewed.

    It is a row of the database, with an expiry by the clock there. Whoever takes it counts a number
    up: every transaction of its owner asks for that number first, and so keeps all others waiting
    until it is committed, or fails.
    """

    def __init__(self, tables: OutboxTables, engine: Engine, seconds: float) -> None:
        """Own nothing yet."""
        self._state = tables.state
        self._engine = engine
        self._clock = database_clock(engine.dialect.name)
        self._seconds = seconds
        self._number: int | None = None
        #: By our own clock: not later than by that of the database.
        self._expires_s = 0.0
        self.owner: Final = uuid4().hex

    @property
    def is_owned(self) -> bool:
        """Whether it was taken, and has surely not expired."""
        return self._number is not None and time.monotonic() < self._expires_s

    @property
    def is_due(self) -> bool:
        """Whether it is time to renew it."""
        return time.monotonic() >= self._expires_s - self._seconds * 2 / 3

    def acquire(self, origin: str | None) -> State | None:
        """Take the lease, if it is free or has expired; ``None`` where it is somebody's.

        The first one ever makes the row. Raises :class:`OutboxProblem` where the outbox has another
        origin.
        """
        self._number = None
        begun = time.monotonic()
        table = self._state
        is_free = or_(
            table.c.lease_owner.is_(None),
            table.c.lease_owner == self.owner,
            table.c.lease_expires <= self._clock,
        )
        with self._engine.connect() as connection:
            # Nobody is kept waiting by those who only look.
            if connection.execute(select(is_free)).scalar() == 0:
                return None
        with self._engine.begin() as connection:
            taken = connection.execute(
                update(table)
                .where(is_free)
                .values(
                    lease_owner=self.owner,
                    lease_number=table.c.lease_number + 1,
                    lease_expires=self._clock + self._seconds,
                )
            )
            found = connection.execute(select(table)).one_or_none()
            if found is not None and origin not in (None, found.origin):
                raise OutboxProblem(
                    f"the origin of this outbox is {found.origin!r}, not {origin!r}"
                )
            if taken.rowcount:
                assert found is not None
                self._number = found.lease_number
                self._expires_s = begun + self._seconds
                return State(found.origin, found.last_sequence)
        if found is None:
            self._make(origin or f"outbox.{uuid4().hex[:8]}")
            return self.acquire(origin)
        return None

    def _make(self, origin: str) -> None:
        row = {
            "id": 1,
            "origin": origin,
            "last_sequence": 0,
            "lease_owner": None,
            "lease_number": 0,
            "lease_expires": 0.0,
        }
        try:
            with self._engine.begin() as connection:
                connection.execute(insert(self._state).values(row))
        except IntegrityError:
            # Another relay has just done so.
            return

    def expire(self) -> None:
        """Use the lease no more before it was acquired anew."""
        self._expires_s = 0.0

    def renew(self, connection: Connection) -> None:
        """Begin a transaction of the owner; raises :class:`LeaseLost`."""
        begun = time.monotonic()
        table = self._state
        if self._number is not None:
            mine = (table.c.lease_owner == self.owner) & (table.c.lease_number == self._number)
            expires = self._clock + self._seconds
            renewed = connection.execute(update(table).where(mine).values(lease_expires=expires))
            if renewed.rowcount:
                self._expires_s = begun + self._seconds
                return
        self._number = None
        raise LeaseLost("another relay has taken the lease of the outbox")

    def release(self) -> None:
        """Give the lease back, if it is ours."""
        table = self._state
        if self._number is not None:
            mine = (table.c.lease_owner == self.owner) & (table.c.lease_number == self._number)
            self._number = None
            with self._engine.begin() as connection:
                connection.execute(update(table).where(mine).values(lease_owner=None))
