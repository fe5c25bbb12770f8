"""The lease that selects the publishing relay among several relays of an outbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from sqlalchemy import Connection, Engine, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from stompkit._common.lease import Lease, steady_s
from stompkit.replication.sources.outbox_tables import OutboxTables

__all__ = ["OutboxError", "OutboxLease", "OutboxLeaseLostError", "State"]


class OutboxLeaseLostError(Exception):
    """Another relay has taken over."""


class OutboxError(ValueError):
    """The outbox belongs to another origin, or the database has none."""


@dataclass(frozen=True, slots=True)
class State:
    """Contents of the row that all relays share."""

    origin: str
    last_sequence: int


class OutboxLease(Lease):
    """The exclusive right to publish.

    It is a row of the database, which expires by the database's clock. Acquiring it increments a
    number. Every transaction of the owner first checks that number, which locks the row until the
    transaction is committed or has failed.
    """

    def __init__(self, tables: OutboxTables, engine: Engine, seconds: float) -> None:
        """Start without the lease."""
        super().__init__(engine.dialect.name, seconds)
        self._state = tables.state
        self._engine = engine
        self._number: int | None = None
        self.owner: Final = uuid4().hex

    @property
    def is_owned(self) -> bool:
        """True if it was acquired, and has certainly not expired."""
        return self._number is not None and self.is_valid

    def acquire(self, origin: str | None) -> State | None:
        """Acquire the lease if it is free or expired; return ``None`` if another relay owns it.

        The first call for an outbox creates the row. Raises :class:`OutboxError` if the outbox
        has another origin.
        """
        self._number = None
        begun_s = steady_s()
        table = self._state
        is_free = or_(
            table.c.lease_owner.is_(None),
            table.c.lease_owner == self.owner,
            table.c.lease_expires <= self._clock,
        )
        with self._engine.connect() as connection:
            # A relay that only checks does not lock the row.
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
                raise OutboxError(f"the origin of this outbox is {found.origin!r}, not {origin!r}")
            if taken.rowcount:
                assert found is not None
                self._number = found.lease_number
                self._extend(begun_s)
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

    def renew(self, connection: Connection) -> None:
        """Begin a transaction of the owner; raises :class:`OutboxLeaseLostError`."""
        begun_s = steady_s()
        table = self._state
        if self._number is not None:
            mine = (table.c.lease_owner == self.owner) & (table.c.lease_number == self._number)
            expires = self._clock + self._seconds
            renewed = connection.execute(update(table).where(mine).values(lease_expires=expires))
            if renewed.rowcount:
                self._extend(begun_s)
                return
        self._number = None
        raise OutboxLeaseLostError("another relay has taken the lease of the outbox")

    def release(self) -> None:
        """Release the lease, if it is owned."""
        table = self._state
        if self._number is not None:
            mine = (table.c.lease_owner == self.owner) & (table.c.lease_number == self._number)
            self._number = None
            with self._engine.begin() as connection:
                connection.execute(update(table).where(mine).values(lease_owner=None))
