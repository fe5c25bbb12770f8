"""The part of a store for held changesets, peers, sessions and metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import and_, delete, func, insert, or_, select

from stompkit.replica.store._access import Access, chunks, from_json, storable, to_json
from stompkit.replica.store._records import (
    LONGEST_NAME,
    LONGEST_ORIGIN,
    HeldRecord,
    PeerRecord,
    check_name,
)

__all__ = ["NodeReader", "NodeWriter"]

#: Prefix of the store's own metadata keys, such as the vector of the base.
_OWN = "store."
_BASE_VECTOR = f"{_OWN}base_vector"
#: Maximum number of changesets to look up in one statement.
_DOTS = 100


class NodeReader(Access):
    """Reads held changesets, peers, sessions and metadata."""

    def meta(self, name: str, default: Any = None) -> Any:
        """Return the value stored by :meth:`NodeWriter.set_meta` under a name."""
        found = self._all(self._statements.meta, wanted=name)
        return from_json(found[0].content) if found else default

    def base_vector(self) -> dict[str, int]:
        """Return the vector of the base; empty if history is complete."""
        found: dict[str, int] = self.meta(_BASE_VECTOR, {})
        return found

    def held(self, limit: int | None = None) -> list[HeldRecord]:
        """Return changesets that were received and not applied, by origin and sequence."""
        held = self._tables.held
        return [
            _held(row)
            for row in self._all(select(held).order_by(held.c.origin, held.c.sequence).limit(limit))
        ]

    def held_of(self, origin: str, sequence: int) -> HeldRecord | None:
        """Return one held changeset, if it is held."""
        return self.held_at([(origin, sequence)]).get((origin, sequence))

    def held_at(self, dots: Iterable[tuple[str, int]]) -> dict[tuple[str, int], HeldRecord]:
        """Return held changesets; those that are not held are missing."""
        held = self._tables.held
        found: dict[tuple[str, int], HeldRecord] = {}
        for some in chunks(list(dots), _DOTS):
            these = [and_(held.c.origin == one, held.c.sequence == number) for one, number in some]
            for row in self._all(select(held).where(or_(*these))):
                found[row.origin, row.sequence] = _held(row)
        return found

    def held_next(self, vector: Mapping[str, int]) -> list[HeldRecord]:
        """Return the held changeset after ``vector`` of each origin, unless it is quarantined.

        Only these can be ready to apply.
        """
        held = self._tables.held.c
        origins = [each for (each,) in self._all(select(held.origin).distinct())]
        found = self.held_at((each, vector.get(each, 0) + 1) for each in origins)
        return [each for _, each in sorted(found.items()) if not each.is_quarantined]

    def held_size(self) -> tuple[int, int]:
        """Return the number of held changesets, and the size of their bodies in bytes."""
        held = self._tables.held
        query = select(func.count(), func.coalesce(func.sum(held.c.size), 0)).select_from(held)
        ((count, octets),) = self._all(query)
        return count, int(octets)

    def peers(self) -> dict[str, PeerRecord]:
        """Return the other nodes, by origin."""
        return {
            row.origin: PeerRecord(
                origin=row.origin,
                vector=from_json(row.vector),
                counter=row.counter,
                heard_at=row.heard_at,
                ports=from_json(row.ports),
                body=row.body,
                facts=from_json(row.facts),
            )
            for row in self._all(select(self._tables.peers))
        }

    def held_numbers(self) -> dict[str, list[int]]:
        """Return the sorted sequences of held changesets, by origin."""
        held = self._tables.held.c
        found: dict[str, list[int]] = {}
        query = select(held.origin, held.sequence).order_by(held.origin, held.sequence)
        for origin, sequence in self._all(query):
            found.setdefault(origin, []).append(sequence)
        return found

    def has_session(self, session: str) -> bool:
        """Return True if a session with that id has begun here."""
        sessions = self._tables.sessions.c
        return bool(self._all(select(sessions.number).where(sessions.session == session)))

    def sessions(self) -> list[tuple[str, int]]:
        """Return the sessions, oldest first: their ids, and the sequence at which each began."""
        sessions = self._tables.sessions.c
        query = select(sessions.session, sessions.start).order_by(sessions.number)
        return [(id, start) for id, start in self._all(query)]


def _held(row: Any) -> HeldRecord:
    return HeldRecord(
        origin=row.origin,
        sequence=row.sequence,
        id=row.id.hex(),
        received_at=row.received_at,
        via=row.via,
        problem=row.problem,
        is_quarantined=bool(row.is_quarantined),
        signature=row.signature,
        body=row.body,
    )


class NodeWriter(NodeReader):
    """Writes held changesets, peers, sessions and metadata."""

    def _write(self) -> None:
        """Count this transaction as a write transaction."""
        raise NotImplementedError

    def set_meta(self, name: str, content: Any) -> None:
        """Store a JSON value under a name that does not begin with ``store.``."""
        if name.startswith(_OWN):
            raise ValueError(f"a name that begins with {_OWN} is the store's own: {name}")
        self._set_meta(name, content)

    def set_base_vector(self, vector: Mapping[str, int]) -> None:
        """Store the vector of the base."""
        self._set_meta(_BASE_VECTOR, vector)

    def _set_meta(self, name: str, content: Any) -> None:
        check_name("what something is kept under", name, LONGEST_NAME)
        self._write()
        row = {"name": name, "content": to_json(content)}
        self.connection.execute(self._statements.put_meta, row)

    def hold(self, records: Iterable[HeldRecord]) -> None:
        """Hold changesets; each replaces a held one of the same origin and sequence."""
        rows = []
        for record in records:
            for name in (record.origin, record.via or record.origin):
                check_name("the name of an origin", name, LONGEST_ORIGIN)
            rows.append(
                {
                    "origin": record.origin,
                    "sequence": record.sequence,
                    "id": bytes.fromhex(record.id),
                    "received_at": record.received_at,
                    "via": record.via,
                    "is_quarantined": int(record.is_quarantined),
                    "size": len(record.body),
                    "problem": storable(record.problem),
                    "signature": record.signature,
                    "body": record.body,
                }
            )
        if rows:
            self._write()
            self.connection.execute(self._statements.hold, rows)

    def unhold(self, dots: Iterable[tuple[str, int]]) -> None:
        """Remove held changesets; harmless if they are not held."""
        held = self._tables.held
        for some in chunks(list(dots), _DOTS):
            these = [and_(held.c.origin == one, held.c.sequence == number) for one, number in some]
            self._write()
            self.connection.execute(delete(held).where(or_(*these)))

    def put_peers(self, records: Iterable[PeerRecord]) -> None:
        """Store the state of other nodes."""
        rows = []
        for record in records:
            check_name("the name of an origin", record.origin, LONGEST_ORIGIN)
            rows.append(
                {
                    "origin": record.origin,
                    "counter": record.counter,
                    "heard_at": record.heard_at,
                    "ports": to_json(record.ports),
                    "vector": to_json(record.vector),
                    "facts": to_json(record.facts),
                    "body": record.body,
                }
            )
        if rows:
            self._write()
            self.connection.execute(self._statements.put_peers, rows)

    def put_peer(self, record: PeerRecord) -> None:
        """Store the state of another node."""
        self.put_peers([record])

    def forget_peer(self, origin: str) -> None:
        """Remove another node; harmless if it is unknown."""
        peers = self._tables.peers
        self._write()
        self.connection.execute(delete(peers).where(peers.c.origin == origin))

    def add_session(self, session: str, start: int) -> None:
        """Add a session after all others, with its start sequence."""
        check_name("the id of a session", session, LONGEST_NAME)
        sessions = self._tables.sessions
        ((last,),) = self._all(select(func.coalesce(func.max(sessions.c.number), 0)))
        self._write()
        row = {"number": last + 1, "session": session, "start": start}
        self.connection.execute(insert(sessions).values(row))
