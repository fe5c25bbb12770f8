"""The floor file: the first ordinal of each partition that retention has left.

Retention writes it before it removes segments. Older segments that are missing later were removed
by someone else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stompkit._common.files import sync_path
from stompkit.spool._files import part_folder, replace_octets, segments
from stompkit.spool._head import decoded, encoded

__all__ = ["ADVICE", "ensure_floor", "raise_floor", "read_floor"]

_NAME: Final = "floor.json"
#: Remedy for missing oldest segments.
ADVICE: Final = f"Bring it back from a copy. If it was removed on purpose, remove {_NAME} as well"


def read_floor(folder: Path) -> tuple[int, ...] | None:
    """Return the floors; None if the file is missing or damaged, as in earlier versions."""
    try:
        return decoded((folder / _NAME).read_bytes(), _NAME)
    except FileNotFoundError:
        return None


def ensure_floor(folder: Path, partitions: int, *, sync: bool = True) -> None:
    """Write the floors of the existing segments, unless the file has floors."""
    known = read_floor(folder)
    if known is None or len(known) != partitions:
        listed = (segments(part_folder(folder, number)) for number in range(partitions))
        _write(folder, tuple(part[0].first if part else 0 for part in listed), sync=sync)


def raise_floor(folder: Path, floors: tuple[int, ...]) -> None:
    """Write floors before the removal of segments; not if the file is missing or damaged."""
    known = read_floor(folder)
    if known is not None and len(known) == len(floors):
        raised = tuple(map(max, known, floors))
        if raised != known:
            try:
                _write(folder, raised, sync=True)
            except OSError:
                # Retention makes room on a full disk. Without the file nothing is missed.
                (folder / _NAME).unlink()
                sync_path(folder)


def _write(folder: Path, floors: tuple[int, ...], *, sync: bool) -> None:
    replace_octets(folder / _NAME, encoded(floors, _NAME), sync=sync)
