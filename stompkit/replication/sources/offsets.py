"""Offsets: checkpoints from which a publisher resumes, and their storage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from sqlalchemy import Column, Engine, LargeBinary, MetaData, String, Table, insert, select, update

from stompkit._common.files import write_atomically
from stompkit._common.moved import renamed
from stompkit._common.tables import create_missing

__all__ = ["Checkpoint", "FileOffsets", "MemoryOffsets", "Offsets", "OffsetsError", "SqlOffsets"]


class OffsetsError(Exception):
    """Stored data is not a checkpoint; ``str()`` says where, and what to do."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a publisher: all receivers have confirmed all changesets up to here."""

    #: Publisher, as in :attr:`Changeset.origin`.
    origin: str
    #: Sequence number of the last changeset.
    sequence: int
    #: Position in the source from which reading resumes.
    position: str
    #: Further state of the publisher, such as the progress of a snapshot.
    state: dict[str, Any] = {}


class Offsets(Protocol):
    """Stores the checkpoint of one publisher."""

    def load(self) -> Checkpoint | None:
        """Return the last checkpoint, or ``None``. Raises :class:`OffsetsError`."""

    def store(self, checkpoint: Checkpoint) -> None:
        """Replace the stored checkpoint durably, so that it survives a crash."""


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Checkpoint)


def _decode(octets: bytes, where: str) -> Checkpoint:
    try:
        return _DECODER.decode(octets)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OffsetsError(
            f"{where} holds no checkpoint ({error}): restore it, or remove it to start over"
        ) from None


class MemoryOffsets:
    """Offsets in memory, which are lost with the process."""

    def __init__(self) -> None:
        """Start empty."""
        self._checkpoint: Checkpoint | None = None

    def load(self) -> Checkpoint | None:
        """Return the last checkpoint."""
        return self._checkpoint

    def store(self, checkpoint: Checkpoint) -> None:
        """Store the checkpoint."""
        self._checkpoint = checkpoint


class FileOffsets:
    """Offsets in a file that is replaced atomically: a crash leaves the old or the new file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Store the checkpoint in that file; its directory must exist."""
        self._path = Path(path)
        self._next = self._path.with_name(self._path.name + ".new")

    def load(self) -> Checkpoint | None:
        """Return the last checkpoint. Raises :class:`OffsetsError`, or OSError if unreadable.

        A missing file is created, so that a path without write access is reported before anything
        is published.
        """
        try:
            octets = self._path.read_bytes()
        except FileNotFoundError:
            self._next.touch(0o600)
            self._next.unlink()
            return None
        return _decode(octets, f"the file {self._path}")

    def store(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint to disk; raises OSError, which names the file."""
        write_atomically(self._path, _ENCODER.encode(checkpoint), partial=self._next)


class SqlOffsets:
    """Offsets in a row of the table ``stompkit_checkpoints`` of an SQL database."""

    def __init__(self, engine: Engine, name: str) -> None:
        """Store the checkpoint of the publisher of that name; create the table if it is missing.

        Raises ``ValueError`` for a name of more than 200 characters.
        """
        if not 0 < len(name) <= 200:
            raise ValueError("the name of a publisher has 1 to 200 characters")
        self._engine = engine
        self._name = name
        self._table = Table(
            "stompkit_checkpoints",
            MetaData(),
            Column("name", String(200), primary_key=True),
            Column("checkpoint", LargeBinary(2**24 - 1), nullable=False),
        )
        create_missing(engine, [self._table])

    def load(self) -> Checkpoint | None:
        """Return the last checkpoint."""
        query = select(self._table.c.checkpoint).where(self._table.c.name == self._name)
        with self._engine.connect() as connection:
            octets = connection.execute(query).scalar_one_or_none()
        if octets is None:
            return None
        return _decode(bytes(octets), f"the row {self._name!r} of {self._table.name}")

    def store(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint in its own transaction."""
        octets = _ENCODER.encode(checkpoint)
        row = update(self._table).where(self._table.c.name == self._name).values(checkpoint=octets)
        with self._engine.begin() as connection:
            if not connection.execute(row).rowcount:
                connection.execute(insert(self._table).values(name=self._name, checkpoint=octets))


renamed(
    __name__,
    OffsetsProblem="OffsetsError",
)
