"""Files that are there as a whole, before or after, whatever fails when."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["put_whole", "sync"]


def put_whole(path: Path, content: bytes) -> None:
    """Replace a file, durably, and its folder made where it is not there; raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Others may be at it as well: each has a file of its own, and the last one counts.
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(new, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Have a file on the disk, or the names in a folder; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
