"""Offsets of a search sink: the last changeset numbers, in a separate index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from stompkit.replication.model.events import Changeset
from stompkit.replication.sinks.search._api import (
    CONFLICT,
    Action,
    Document,
    SearchApi,
    SearchError,
    batches,
    shown,
    versioned,
)
from stompkit.replication.sinks.search._documents import encode

__all__ = ["SearchOffsets"]

#: Number of retries of updating the list of origins after concurrent writes.
_ATTEMPTS: Final = 20
#: Id of the document that lists origins; ids of offsets have another prefix.
_ORIGINS: Final = "origins"


class SearchOffsets:
    """A document with the last number for each origin, and one that lists all origins.

    Documents that are to move to another key, and recovered ones, are stored in separate documents,
    which the origin's document references until the changesets are applied.
    """

    def __init__(self, api: SearchApi, index: str) -> None:
        """Store them in ``index``, which the server creates with the first document."""
        self._api = api
        self.index = index
        self._numbers: dict[str, int] = {}
        # As they were last read or written.
        self._last: dict[str, int | None] = {}
        self._notes: dict[str, list[str]] = {}
        self._owners: dict[str, dict[str, str]] = {}

    def last(self, origins: Sequence[str]) -> dict[str, int | None]:
        """Return the last number of each of these, ``None`` if there is none."""
        places = {origin: (self.index, _id(origin)) for origin in origins}
        found = self._api.get(list(places.values()))
        for origin, place in places.items():
            source = found[place].source if place in found else {}
            self._last[origin] = source.get("sequence")
            self._notes[origin] = source.get("moves", [])
            self._owners[origin] = source.get("tables", {})
        return {origin: self._last[origin] for origin in origins}

    def owners(self, origin: str) -> dict[str, str]:
        """Return the tables of an origin by their indices; call :meth:`last` before."""
        return self._owners[origin]

    def begin(self, changeset: Changeset, moves: Sequence[Action], most: int) -> None:
        """Store planned moves, in documents of about ``most`` bytes.

        ``changeset`` is the last one that causes them; call :meth:`last` for its origin before.
        Raises :class:`SearchError`, also if another sink has applied changesets meanwhile.
        """
        origin = changeset.origin
        notes = []
        for number, batch in enumerate(batches(moves, most)):
            notes.append(f"moves:{origin}:{changeset.sequence}:{number}")
            text = b"".join(move.lines() for move in batch).decode()
            self._write(Action("index", self.index, notes[-1], {}, encode({"moves": text})))
        if notes and not self._store(origin, self._last[origin], notes):
            raise SearchError(f"index {self.index}: somebody else applies what {origin} says")

    def moves(self, origin: str) -> list[Action]:
        """Return the stored, possibly unfinished moves of an origin; call :meth:`last` before."""
        places = [(self.index, note) for note in self._notes[origin]]
        found = self._api.get(places)
        lines = (found[place].source["moves"].encode() for place in places if place in found)
        return [move for each in lines for move in Action.read(each)]

    def store(self, changeset: Changeset, owners: Mapping[str, str] | None = None) -> None:
        """Store the number of a changeset, and owners, unless a higher number is stored."""
        origin = changeset.origin
        if origin not in self._owners:
            self.last([origin])
        self._owners[origin] = {**(owners or {}), **self._owners[origin]}
        if self._store(origin, changeset.sequence, []):
            old = [Action("delete", self.index, note, {}) for note in self._notes.pop(origin, ())]
            if old:
                list(self._api.bulk(old))

    def _store(self, origin: str, sequence: int | None, notes: list[str]) -> bool:
        """Store a number; return False if a higher one is stored."""
        source: dict[str, object] = {"origin": origin, "sequence": sequence}
        if notes:
            source["moves"] = notes
        if self._owners[origin]:
            source["tables"] = self._owners[origin]
        version = 0 if sequence is None else sequence + 1
        is_stored = self._write(versioned((self.index, _id(origin)), version, encode(source)))
        if is_stored and notes:
            self._notes[origin] = list(dict.fromkeys([*self._notes[origin], *notes]))
        return is_stored

    def number(self, origin: str) -> int:
        """Return the rank of an origin, in the order of their first changesets."""
        if origin in self._numbers:
            return self._numbers[origin]
        for _ in range(_ATTEMPTS):
            stored = self._api.get([(self.index, _ORIGINS)]).get((self.index, _ORIGINS))
            origins = [] if stored is None else list(stored.source["origins"])
            is_known = origin in origins
            if is_known or self._replace(stored, encode({"origins": [*origins, origin]})):
                self._numbers[origin] = origins.index(origin) if is_known else len(origins)
                return self._numbers[origin]
        raise SearchError(f"index {self.index}: too many write the list of origins")

    def _replace(self, stored: Document | None, source: bytes) -> bool:
        """Write the list if it is unchanged since it was read; return True on success."""
        if stored is None:
            return self._write(Action("create", self.index, _ORIGINS, {}, source))
        same = {"if_seq_no": stored.sequence_number, "if_primary_term": stored.primary_term}
        return self._write(Action("index", self.index, _ORIGINS, same, source))

    def _write(self, action: Action) -> bool:
        """Execute an action; return False on a conflict."""
        ((_, result),) = self._api.bulk([action])
        if "error" not in result:
            return True
        if result["status"] != CONFLICT:
            raise SearchError(f"index {self.index}: {shown(result['error'])}")
        return False


def _id(origin: str) -> str:
    return f"origin:{origin}"
