"""The directory that keeps compiled programs of the benchmarks for the next run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["cache"]


def cache() -> Path:
    """Return the cache directory of the user, or one for this user among temporary ones.

    Raise PermissionError if the latter belongs to another user.
    """
    given = os.environ.get("XDG_CACHE_HOME")
    directory = (Path(given) if given else Path.home() / ".cache") / "stompkit"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        directory = Path(tempfile.gettempdir()) / f"stompkit-{os.getuid()}"
        directory.mkdir(mode=0o700, exist_ok=True)
        if directory.stat().st_uid != os.getuid():
            raise PermissionError(f"{directory} belongs to somebody else") from None
    return directory
