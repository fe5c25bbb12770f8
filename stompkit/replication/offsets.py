"""Where a publisher goes on: checkpoints, and where they are kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from sqlalchemy import Column, Engine, LargeBinary, MetaData, String, Table, insert, select, update

from stompkit._common.files import write_atomically

__all__ = ["Checkpoint", "FileOffsets", "MemoryOffsets", "Offsets", "OffsetsProblem", "SqlOffsets"]


class OffsetsProblem(Exception):
    """What was kept is no checkpoint; ``str()`` says where, and what to do."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How far a publisher has come: all changesets up to here have been taken by everybody."""

    #: Who publishes, as :attr:`Changeset.origin` says.
    origin: str
    #: The number of the last changeset.
    sequence: int
    #: Where reading is resumed, in the terms of the source.
    position: str
    #: What else the publisher has to know, such as the progress of a snapshot.
    state: dict[str, Any] = {}


class Offsets(Protocol):
    """Keeps the checkpoint of one publisher."""

    def load(self) -> Checkpoint | None:
        """The last one; ``None`` where none was stored. Raises :class:`OffsetsProblem`."""

    def store(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint in place of the one before, so that it survives a crash."""


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Checkpoint)


def _decode(octets: bytes, where: str) -> Checkpoint:
    try:
        return _DECODER.decode(octets)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OffsetsProblem(
            f"{where} holds no checkpoint ({error}): restore it, or remove it to begin anew"
        ) from None


class MemoryOffsets:
    """Forgets with the process."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._checkpoint: Checkpoint | None = None

    def load(self) -> Checkpoint | None:
        """The last one."""
        return self._checkpoint

    def store(self, checkpoint: Checkpoint) -> None:
        """Keep it."""
        self._checkpoint = checkpoint


class FileOffsets:
    """A file, which is replaced as a whole: a crash leaves the old one or the new one."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Keep the checkpoint in that file; its directory has to be there."""
        self._path = Path(path)
        self._next = self._path.with_name(self._path.name + ".new")

    def load(self) -> Checkpoint | None:
        """The last one. Raises :class:`OffsetsProblem`, and OSError for a file that can't be read.

        The file is made where it is missing, so that a place that can't be written to is found
        before anything is published.
        """
        try:
            octets = self._path.read_bytes()
        except FileNotFoundError:
            self._next.touch(0o600)
            self._next.unlink()
            return None
        return _decode(octets, f"the file {self._path}")

    def store(self, checkpoint: Checkpoint) -> None:
        """Write it to the disk; raises OSError, which says what file it is about."""
        write_atomically(self._path, _ENCODER.encode(checkpoint), partial=self._next)


class SqlOffsets:
    """A row of the table ``stompkit_checkpoints`` of an SQL database."""

    def __init__(self, engine: Engine, name: str) -> None:
        """Keep the checkpoint of the publisher of that name; makes the table where it is missing.

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
        self._table.create(engine, checkfirst=True)

    def load(self) -> Checkpoint | None:
        """The last one."""
        query = select(self._table.c.checkpoint).where(self._table.c.name == self._name)
        with self._engine.connect() as connection:
            octets = connection.execute(query).scalar_one_or_none()
        if octets is None:
            return None
        return _decode(bytes(octets), f"the row {self._name!r} of {self._table.name}")

    def store(self, checkpoint: Checkpoint) -> None:
        """Write it in a transaction of its own."""
        octets = _ENCODER.encode(checkpoint)
        row = update(self._table).where(self._table.c.name == self._name).values(checkpoint=octets)
        with self._engine.begin() as connection:
            if not connection.execute(row).rowcount:
                connection.execute(insert(self._table).values(name=self._name, checkpoint=octets))
