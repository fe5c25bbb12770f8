"""The identity of a spool."""

from __future__ import annotations

import socket
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from stompkit._common.files import sync_path
from stompkit.spool._epochs import ensure_epochs
from stompkit.spool._errors import BrokenSpoolError, SpoolError
from stompkit.spool._files import (
    part_folder,
    read_json,
    replace,
    segment_path,
    segments,
)
from stompkit.spool._head import ensure_floor, new_head

__all__ = ["Identity", "create", "identity_of", "is_spool", "upgrade"]

_IDENTITY: Final = "spool.json"
#: Format of new spools. Those of format 1, of earlier versions, have files without their places and
#: no floor file; a writer turns them into this format and leaves the segments as they are.
_FORMAT: Final = 2
_FORMATS: Final = (1, _FORMAT)


class Identity(NamedTuple):
    """The identity of a spool, which never changes."""

    id: str
    partitions: int


def is_spool(folder: Path) -> bool:
    """Return True if the folder contains a spool."""
    return (folder / _IDENTITY).exists()


def identity_of(folder: Path, *, is_elsewhere: bool = False) -> Identity:
    """Return the identity of the spool in a folder; raises :class:`SpoolError` if none.

    With *is_elsewhere* the error of a missing spool is that this machine does not see it.
    """
    path = folder / _IDENTITY
    if sys.byteorder != "little":
        raise SpoolError("spools are read in place, which needs a little-endian processor")
    try:
        content = read_json(path)
        identity = Identity(str(content["id"]), int(content["partitions"]))
        found = content["format"]
    except FileNotFoundError:
        if is_elsewhere:
            raise SpoolError(
                f"{folder} has no spool on the machine {socket.gethostname()}: all machines have to"
                " see this folder under the same path, over NFS or as a shared volume"
            ) from None
        raise SpoolError(
            f"there is no spool in {folder}. Check the path; `stompkit spool run` or a SpoolWriter"
            " creates a spool."
        ) from None
    except (KeyError, TypeError, ValueError):
        raise BrokenSpoolError(path, 0, "it does not say which spool this is") from None
    if found not in _FORMATS:
        raise SpoolError(
            f"{folder} has a spool of format {found}; this version reads formats up to {_FORMAT}:"
            " upgrade stompkit"
        )
    return identity


def upgrade(folder: Path) -> None:
    """Note the present format, before a file is written that earlier versions cannot read."""
    path = folder / _IDENTITY
    content = read_json(path)
    if content["format"] != _FORMAT:
        replace(path, {**content, "format": _FORMAT})


def create(folder: Path, partitions: int, now_s: float) -> Identity:
    """Create a spool in a folder; raises BrokenSpoolError if that contains old segments."""
    for number in range(partitions):
        part = part_folder(folder, number)
        part.mkdir(mode=0o700, exist_ok=True)
        for segment in segments(part):
            if segment.path.stat().st_size:
                raise BrokenSpoolError(
                    folder / _IDENTITY, 0, "it is missing, but messages are there"
                )
        segment_path(part, 0).touch(mode=0o600)
        sync_path(part)
    new_head(folder, (0,) * partitions)
    ensure_floor(folder, partitions)
    ensure_epochs(folder, (0,) * partitions)
    identity = Identity(uuid.uuid4().hex, partitions)
    created = datetime.fromtimestamp(now_s, UTC).isoformat()
    # Written last: readers rely on it as proof that all other files exist.
    replace(
        folder / _IDENTITY,
        {"format": _FORMAT, "id": identity.id, "partitions": partitions, "created": created},
    )
    sync_path(folder.parent)
    return identity
