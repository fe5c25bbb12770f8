"""Where a replica's merged rows become visible: the application's tables, or documents.

What is written is what the merged state of a row says, however it has come to that. A database can
refuse it: two replicas have each taken the last free name, a row refers to one that another replica
has deleted. Such a row is told with its reason, and can be written again when the cause has gone;
all others are written.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol

from sqlalchemy import Connection, Engine

from stompkit.replication.values import Value

__all__ = ["Data", "Wanted"]


class Wanted(NamedTuple):
    """A row as it has to be."""

    #: By which the caller knows it.
    id: bytes
    #: As :attr:`~stompkit.replication.events.RowChange.name` has it.
    table: str
    key: dict[str, Value]
    #: The columns beside the key, as far as anybody has ever written them; ``None`` for no row.
    values: dict[str, Value] | None


class Data(Protocol):
    """The tables that a replica writes to and reads from; others use them at the same time."""

    @property
    def names(self) -> Container[str]:
        """The tables that are replicated here."""

    @property
    def unknown(self) -> Mapping[str, AbstractSet[str]]:
        """Columns, by the names of tables, that were told and left out: there are none here."""

    def create(self, engine: Engine) -> None:
        """Make what is not the application's own, where it is missing."""

    def forget(self) -> None:
        """Look at the tables again before they are used: they may have become others."""

    def prepare(self, connection: Connection) -> None:
        """Begin a transaction that may write, before it holds any lock.

        Where the last one had to give way to an application that held some of its rows, these are
        locked first: who waits for a row with the replica's lock, which the application needs to
        commit, would give way each time. Raises as :meth:`write` does.
        """

    def write(self, connection: Connection, rows: Sequence[Wanted]) -> dict[bytes, str]:
        """Make the tables so; return why not, by the ids of rows that the database refuses.

        It is done in the transaction that the connection is in, which goes on whatever is refused.
        Of several rows with one id the last one counts. A reason names columns, constraints and
        types, and has nothing of what rows hold. What may pass by itself, such as a lock that
        somebody else has or a connection that is lost, is raised as SQLAlchemy does.
        """

    def read(
        self,
        connection: Connection,
        table: str,
        after: Mapping[str, Value] | None = None,
        limit: int = 1000,
    ) -> list[tuple[dict[str, Value], dict[str, Value]]]:
        """Keys and other columns of rows, in the order of keys, behind the one with a key.

        Raises ``KeyError`` for a table that is not here.
        """

    def read_one(
        self, connection: Connection, table: str, key: Mapping[str, Value]
    ) -> dict[str, Value] | None:
        """The columns of a row beside its key; ``None`` where there is no such row.

        Raises ``KeyError`` for a table that is not here.
        """

    def tables(self, connection: Connection) -> list[str]:
        """The names of the tables that are there now, in order."""
