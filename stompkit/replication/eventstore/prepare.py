"""Prepare and commit: a transaction's changes are noted before the database commits them.

A process that dies between the database's commit and the publication leaves a note behind;
:func:`~stompkit.replication.eventstore.recovery.recover` publishes these transactions.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, ClassVar, Final, Literal, Protocol
from uuid import uuid4

import msgspec

from stompkit.replication.eventstore._keys import keys_from_texts, keys_to_texts
from stompkit.replication.eventstore._process import Process, is_running, this_process
from stompkit.replication.eventstore.store import Namespace

__all__ = [
    "HasInfo",
    "PrepareCommit",
    "Prepared",
    "fixed_namespace",
    "forget_session",
    "session_id",
]

_log: Final = logging.getLogger(__name__)
#: Key in ``session.info`` of the transaction's id; the publisher reads it, too.
_INFO: Final = "stompkit.session_id"
#: Maximum number of notes to remember for a later removal, after their removal has failed.
_MOST_BEHIND: Final = 10_000


class HasInfo(Protocol):
    """The interface of a session that is needed here."""

    @property
    def info(self) -> dict[Any, Any]:
        """Arbitrary data about the session."""


def session_id(session: HasInfo) -> str:
    """Return the id of the session's outermost transaction; it is generated on first use."""
    id: str = session.info.setdefault(_INFO, uuid4().hex)
    return id


def forget_session(session: HasInfo) -> None:
    """End the transaction's id: the session's next transaction gets a new one."""
    session.info.pop(_INFO, None)


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A note about a transaction."""

    id: str
    #: Time of the last prepare, in seconds since 1970, by the clock of the server with the note.
    time: float
    #: True if its session has ended, the database has it or may have it, and only the publication
    #: is missing.
    is_committed: bool
    process: Process
    #: Keys of rows by intended change, as in ``{"users_write": [7]}``.
    event: dict[str, list[Any]]


def fixed_namespace(namespace: Namespace | None, default: str) -> str:
    """Return the namespace of notes, which must not depend on the day: that of time 0."""
    if namespace is None:
        return default
    return namespace if isinstance(namespace, str) else namespace(0.0)


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    """A note in its stored form, in JSON."""

    process: Process
    event: dict[str, list[str]]


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(_Note)

#: Outcome of a transaction whose note could not be changed.
_Outcome = Literal["over", "committed"]


class PrepareCommit(ABC):
    """Notes about transactions that may be committed but are not published yet.

    Each method that takes a session also takes the id of a transaction. All methods are
    thread-safe.
    """

    #: Errors of a server that is unavailable, slow or failing.
    _problems: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, strict: bool = False) -> None:  # noqa: FBT001, FBT002 - as Meepo has it
        """With ``strict``, a failure raises the driver's error, which aborts the transaction.

        Otherwise it is logged, and the transaction continues without a note.
        """
        self._strict = strict
        self._lock = Lock()
        self._behind: dict[str, _Outcome] = {}

    def prepare(self, session: HasInfo | str, event: Mapping[str, Iterable[Any]]) -> bool:
        """Note the changes of a transaction until now, in place of the previous note.

        ``event`` has the keys of rows by signals, as in ``{"users_write": [7]}``. An empty event
        makes no note. Returns True if the server has stored the note. Raises ``InvalidValueError``
        for keys without a JSON form.
        """
        texts = {name: keys for name, keys in keys_to_texts(event).items() if keys}
        if not texts:
            return self._settle(_id(session), "over")
        body = _ENCODER.encode(_Note(process=this_process(), event=texts))
        return self._try("prepare", _id(session), lambda id: self._save(id, body))

    def commit(self, session: HasInfo | str, *, published: bool = True) -> bool:
        """Remove the note: the transaction was committed and published.

        If it could not be ``published``, the note stays, and is marked as committed.
        """
        if published:
            return self._settle(_id(session), "over")
        return self._settle(_id(session), "committed")

    def rollback(self, session: HasInfo | str) -> bool:
        """Remove the note: the transaction was rolled back."""
        return self._settle(_id(session), "over")

    def unknown(self, session: HasInfo | str) -> bool:
        """Keep the note for recovery: nobody knows whether the transaction was committed."""
        return self._settle(_id(session), "committed")

    def phase(self, session: HasInfo | str) -> Literal["prepare", "commit"]:
        """Return ``prepare`` if there is a note, otherwise ``commit``."""
        return "commit" if self._load([_id(session)]) == [None] else "prepare"

    def session_info(self, session: HasInfo | str) -> dict[str, list[Any]]:
        """Return the noted keys; empty if there is no note."""
        (found,) = self._load([_id(session)])
        return {} if found is None else found.event

    def prepare_info(self, ts: float | None = None) -> set[str]:
        """Return the ids of all transactions with a note, or of those prepared until ``ts``."""
        return {id for id, _ in self._list(math.inf if ts is None else ts)}

    def clear(self, ts: float | None = None) -> int:
        """Delete all notes, or those of ``ts`` and before; return their number."""
        ids = list(self.prepare_info(ts))
        self._remove(ids)
        return len(ids)

    def stuck(self, older_than_s: float = 60.0) -> list[Prepared]:
        """Return the notes of transactions that no process is going to publish, oldest first.

        These have not been prepared again for ``older_than_s`` seconds. Notes of a running process
        on this machine and in this container are excluded, unless the process has released them.
        For processes elsewhere only the time is known. It must therefore exceed the longest time
        between a transaction's last flush and its end.
        """
        found = []
        for id, _ in self._list(self._now() - older_than_s):
            try:
                (note,) = self._load([id])
            except ValueError as error:
                # An unreadable note does not block the others.
                _log.error("the note of session %s cannot be read: %s", id, error)
                continue
            if note is not None and (note.is_committed or not is_running(note.process)):
                found.append(note)
        return found

    def claim(self, id: str, lease_s: float) -> bool:
        """Claim a note for ``lease_s`` seconds; return ``False`` if it is already claimed."""
        return self._claim(id, lease_s)

    def release(self, id: str) -> None:
        """Release a claimed note."""
        self._release(id)

    @abstractmethod
    def close(self) -> None:
        """Disconnect; the next use reconnects."""

    # Methods of the subclasses. All of them raise the driver's errors.

    @abstractmethod
    def _save(self, id: str, body: bytes) -> None:
        """Store a note, with the current time."""

    @abstractmethod
    def _remove(self, ids: Sequence[str]) -> None:
        """Delete notes and claims."""

    @abstractmethod
    def _mark(self, ids: Sequence[str]) -> None:
        """Mark existing notes as committed."""

    @abstractmethod
    def _list(self, until: float) -> list[tuple[str, float]]:
        """Return ids and times of notes, up to a time, oldest first."""

    @abstractmethod
    def _load(self, ids: Sequence[str]) -> list[Prepared | None]:
        """Return notes."""

    @abstractmethod
    def _claim(self, id: str, lease_s: float) -> bool:
        """Claim a note unless it is claimed."""

    @abstractmethod
    def _release(self, id: str) -> None:
        """Release the claim of a note."""

    @abstractmethod
    def _now(self) -> float:
        """Return the server's time."""

    # Inside.

    @staticmethod
    def _read(id: str, time: float, is_committed: bool, body: bytes) -> Prepared:  # noqa: FBT001
        note = _DECODER.decode(body)
        return Prepared(
            id=id,
            time=time,
            is_committed=is_committed,
            process=note.process,
            event=keys_from_texts(note.event),
        )

    def _settle(self, id: str, outcome: _Outcome) -> bool:
        """Change a note, and those whose change has failed before."""
        with self._lock:
            if len(self._behind) < _MOST_BEHIND:
                self._behind[id] = outcome
            behind = {**self._behind, id: outcome}

        def change(_: str) -> None:
            for wanted, write in (("over", self._remove), ("committed", self._mark)):
                ids = [each for each, outcome in behind.items() if outcome == wanted]
                if ids:
                    write(ids)

        if not self._try("commit", id, change):
            return False
        with self._lock:
            for each in behind:
                self._behind.pop(each, None)
        return True

    def _try(self, what: str, id: str, write: Callable[[str], None]) -> bool:
        try:
            write(id)
        except self._problems as error:
            if self._strict:
                raise
            _log.error("%s of session %s not noted: %s", what, id, error)
            return False
        return True


def _id(session: HasInfo | str) -> str:
    return session if isinstance(session, str) else session_id(session)
