"""Prepare and commit: what a transaction has changed is noted before the database commits it.

Who dies between the commit of the database and the publication of what was committed leaves a note
behind; :func:`~stompkit.replication.eventsourcing.recovery.recover` makes up for it.
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

from stompkit.replication.eventsourcing._keys import keys_from_texts, keys_to_texts
from stompkit.replication.eventsourcing._process import Process, is_running, this_process
from stompkit.replication.eventsourcing.store import Namespace

__all__ = [
    "HasInfo",
    "PrepareCommit",
    "Prepared",
    "fixed_namespace",
    "forget_session",
    "session_id",
]

_log: Final = logging.getLogger(__name__)
#: Where a session has the id of its transaction; what publishes it looks there, too.
_INFO: Final = "stompkit.session_id"
#: Notes that could not be removed are remembered, so that it can be done later; no more than these.
_MOST_BEHIND: Final = 10_000


class HasInfo(Protocol):
    """A session, as far as it matters here."""

    @property
    def info(self) -> dict[Any, Any]:
        """What anybody may note about it."""


def session_id(session: HasInfo) -> str:
    """The id of the outermost transaction of a session; made when it is first asked for."""
    id: str = session.info.setdefault(_INFO, uuid4().hex)
    return id


def forget_session(session: HasInfo) -> None:
    """The transaction is over: what the session does next is another one."""
    session.info.pop(_INFO, None)


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A note about a transaction."""

    id: str
    #: Seconds since 1970 when it was last prepared, by the clock of the server that has the note.
    time: float
    #: Whether the database has committed it for sure, and only the publication is left.
    is_committed: bool
    process: Process
    #: The keys of rows by what is to become of them, as in ``{"users_write": [7]}``.
    event: dict[str, list[Any]]


def fixed_namespace(namespace: Namespace | None, default: str) -> str:
    """The namespace of notes, which have to be found on whatever day: that of the time 0."""
    if namespace is None:
        return default
    return namespace if isinstance(namespace, str) else namespace(0.0)


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    """A note as it is kept, in JSON."""

    process: Process
    event: dict[str, list[str]]


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(_Note)

#: What a transaction has come to whose note could not be changed.
_Outcome = Literal["over", "committed"]


class PrepareCommit(ABC):
    """Notes about transactions that may be committed but are not published yet.

    Where it takes a session it also takes the id of one of its transactions. It can be used by
    several threads.
    """

    #: What a server that is away, slow or in trouble fails with.
    _problems: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, strict: bool = False) -> None:  # noqa: FBT001, FBT002 - as Meepo has it
        """With ``strict``, what fails raises what the driver does: a transaction is aborted then.

        Without, it is logged, and the transaction goes on without a note.
        """
        self._strict = strict
        self._lock = Lock()
        self._behind: dict[str, _Outcome] = {}

    def prepare(self, session: HasInfo | str, event: Mapping[str, Iterable[Any]]) -> bool:
        """Note what a transaction has changed so far; it stands in place of the note before.

        ``event`` has the keys of rows by signals, as in ``{"users_write": [7]}``. Of nothing there
        is no note. Gives whether the server knows. Raises ``ValueProblem`` for keys that have no
        form in JSON.
        """
        texts = {name: keys for name, keys in keys_to_texts(event).items() if keys}
        if not texts:
            return self._settle(_id(session), "over")
        body = _ENCODER.encode(_Note(process=this_process(), event=texts))
        return self._try("prepare", _id(session), lambda id: self._save(id, body))

    def commit(self, session: HasInfo | str, *, published: bool = True) -> bool:
        """Remove the note: the transaction was committed, and that is known where it should be.

        Where it could not be ``published``, the note stays, and says that it was committed.
        """
        if published:
            return self._settle(_id(session), "over")
        return self._settle(_id(session), "committed")

    def rollback(self, session: HasInfo | str) -> bool:
        """Remove the note: there was no such transaction."""
        return self._settle(_id(session), "over")

    def phase(self, session: HasInfo | str) -> Literal["prepare", "commit"]:
        """``prepare`` where there is a note, ``commit`` where there is none any more."""
        return "commit" if self._load([_id(session)]) == [None] else "prepare"

    def session_info(self, session: HasInfo | str) -> dict[str, list[Any]]:
        """What was noted; empty where nothing is."""
        (found,) = self._load([_id(session)])
        return {} if found is None else found.event

    def prepare_info(self, ts: float | None = None) -> set[str]:
        """The ids of all transactions with a note, or of those that were prepared until ``ts``."""
        return {id for id, _ in self._list(math.inf if ts is None else ts)}

    def clear(self, ts: float | None = None) -> int:
        """Forget all notes, or those of ``ts`` and before; gives how many there were."""
        ids = list(self.prepare_info(ts))
        self._remove(ids)
        return len(ids)

    def stuck(self, older_than_s: float = 60.0) -> list[Prepared]:
        """The notes of transactions that nobody is going to publish, the oldest first.

        These have not been prepared again for ``older_than_s`` seconds. Those of a process that
        still runs, on this machine and in this container, are left to it, unless it has said that
        it is done with them. Of processes elsewhere only the time is known, so it has to be longer
        than any transaction takes from its last flush to its end.
        """
        found = []
        for id, _ in self._list(self._now() - older_than_s):
            try:
                (note,) = self._load([id])
            except ValueError as error:
                # One that nobody can read keeps nobody from the others.
                _log.error("the note of session %s can't be read: %s", id, error)
                continue
            if note is not None and (note.is_committed or not is_running(note.process)):
                found.append(note)
        return found

    def claim(self, id: str, lease_s: float) -> bool:
        """Take a note for oneself, for ``lease_s`` seconds; ``False`` where somebody else has."""
        return self._claim(id, lease_s)

    def release(self, id: str) -> None:
        """Leave a note to whoever comes next."""
        self._release(id)

    @abstractmethod
    def close(self) -> None:
        """Disconnect; it connects again when it is used."""

    # What the kinds do. All of them raise what the driver does.

    @abstractmethod
    def _save(self, id: str, body: bytes) -> None:
        """Keep a note, with the time of now."""

    @abstractmethod
    def _remove(self, ids: Sequence[str]) -> None:
        """Forget notes and claims."""

    @abstractmethod
    def _mark(self, ids: Sequence[str]) -> None:
        """Have those notes that are there say that they were committed."""

    @abstractmethod
    def _list(self, until: float) -> list[tuple[str, float]]:
        """Ids and times of notes, up to a time, the oldest first."""

    @abstractmethod
    def _load(self, ids: Sequence[str]) -> list[Prepared | None]:
        """Notes."""

    @abstractmethod
    def _claim(self, id: str, lease_s: float) -> bool:
        """Take a note unless it is taken."""

    @abstractmethod
    def _release(self, id: str) -> None:
        """Let others take a note."""

    @abstractmethod
    def _now(self) -> float:
        """The server's time."""

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
        """Change a note, and those that could not be changed before."""
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
