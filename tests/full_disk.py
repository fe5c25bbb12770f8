"""A small full file system, which a command sees at a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.namespaces import unshared

__all__ = ["on_full_disk"]

#: Mounts the file system on a directory, fills it, and runs a command.
_SCRIPT: Final = """
mount -t tmpfs -o size=8k full "$1" && { cat /dev/zero > "$1/rest" 2>/dev/null; shift; exec "$@"; }
"""


def on_full_disk(directory: Path) -> list[str]:
    """Return the command before another, for which the directory is on a full disk.

    It skips the test where namespaces are not permitted.
    """
    return unshared("-rm", _SCRIPT, str(directory))
