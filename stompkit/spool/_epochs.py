"""Epochs of a spool: each writer that appends messages begins one.

If a spool is replaced by an older copy and grows again, its ordinals refer to other messages than
before. A reader that stores the epoch with its ordinals notices this: the epoch is missing, or ends
before the ordinals.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec

from stompkit.spool._files import checksum, replace

__all__ = ["Epoch", "begin_epoch", "ensure_epochs", "epoch_of", "is_continued", "read_epochs"]

_NAME: Final = "epochs.json"
#: Number of epochs that are kept; earlier ones cannot be checked.
_MOST: Final = 200


class Epoch(NamedTuple):
    """The messages that one writer has appended."""

    #: Number, and a random part: the numbers grow, and are times in microseconds.
    id: str
    #: First ordinal of each partition.
    starts: tuple[int, ...]

    @property
    def number(self) -> int:
        """The number in the id."""
        return int(self.id.partition("-")[0])


class _Content(msgspec.Struct):
    epochs: list[
        tuple[Annotated[str, msgspec.Meta(pattern=r"^[0-9]+-[0-9a-f]+$")], tuple[int, ...]]
    ]
    crc: str


_CONTENT: Final = msgspec.json.Decoder(_Content)


def read_epochs(folder: Path) -> list[Epoch]:
    """Return the epochs, oldest first; none if the file is missing or damaged."""
    try:
        content = _CONTENT.decode((folder / _NAME).read_bytes())
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return []
    found = [Epoch(*each) for each in content.epochs]
    return found if content.crc == _checksum(found) else []


def ensure_epochs(folder: Path, ordinals: tuple[int, ...]) -> None:
    """Begin the first epoch of a spool that has none."""
    if not read_epochs(folder):
        begin_epoch(folder, ordinals)


def begin_epoch(folder: Path, ordinals: tuple[int, ...], *, sync: bool = True) -> None:
    """Begin an epoch at the ends of the partitions, before a message is published."""
    known = read_epochs(folder)[1 - _MOST :]
    number = max(known[-1].number + 1 if known else 0, time.time_ns() // 1000)
    epochs = [*known, Epoch(f"{number}-{uuid.uuid4().hex[:12]}", ordinals)]
    replace(folder / _NAME, {"epochs": epochs, "crc": _checksum(epochs)}, sync=sync)


def epoch_of(epochs: Sequence[Epoch], ordinals: Sequence[int]) -> str:
    """Return the newest epoch with a message before these ordinals; empty if there is none."""
    for epoch in reversed(epochs):
        if any(start < end for start, end in zip(epoch.starts, ordinals, strict=True)):
            return epoch.id
    return ""


def is_continued(
    epochs: Sequence[Epoch], head: tuple[int, ...], ordinals: Sequence[int], epoch: str
) -> bool:
    """Return True unless a spool has other messages before the ordinals than in the epoch."""
    number = epoch.partition("-")[0]
    if not (epoch and epochs) or (number.isdecimal() and int(number) < epochs[0].number):
        return True
    ends = {each.id: following.starts for each, following in pairwise(epochs)}
    ends[epochs[-1].id] = head
    own = ends.get(epoch)
    return own is not None and all(a <= b for a, b in zip(ordinals, own, strict=True))


def _checksum(epochs: Sequence[Epoch]) -> str:
    text = repr([tuple(each) for each in epochs])
    return checksum(f"{_NAME}{text}")
