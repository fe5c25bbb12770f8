"""Servers that ``make servers`` has fetched, in versions that the system does not have.

They are in a cache folder. A file ``NAME.json`` there marks each complete server::

    {"server": "rabbitmq", "version": "4.3.6", "folder": "debian-sid"}

The folder holds either the server's own files or a whole Debian system. A program of such a system
runs in a separate mount namespace, with that system's ``/usr`` in place of the machine's.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stompkit._common.files import user_caches

__all__ = [
    "CACHE_VARIABLE",
    "Fetched",
    "cache_folder",
    "fetched",
    "how_to_fetch",
    "is_of_version",
    "version_key",
]

#: Environment variable with the path of the cache folder.
CACHE_VARIABLE: Final = "STOMPKIT_SERVERS"

# The namespace and this mount end with the last process: no unmount is necessary.
_WITHIN: Final = 'mount --bind "$0/usr" /usr && exec "$@"'
#: On a system where these are separate from /usr, programs would load the wrong libraries.
_MERGED: Final = (Path("/bin"), Path("/lib"))


@dataclass(frozen=True)
class Fetched:
    """A server in the cache folder."""

    name: str
    """The server's name in ``make servers``, as in ``rabbitmq-4``."""
    server: str
    """The kind of server, as in ``rabbitmq``."""
    version: str
    """The exact version that was fetched, as in ``4.3.6``."""
    folder: Path
    """The folder with its files, or with the system that it is installed in."""

    def save(self) -> None:
        """Write the record, which marks the server as complete."""
        cache = self.folder.parent
        record = {"server": self.server, "version": self.version, "folder": self.folder.name}
        unfinished = cache / f"{self.name}.json.part"
        unfinished.write_text(json.dumps(record) + "\n", encoding="utf-8")
        unfinished.replace(_record(cache, self.name))

    def within(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs a program of the system in the folder."""
        unshare = shutil.which("unshare") or "unshare"
        return [unshare, "--mount", "sh", "-c", _WITHIN, str(self.folder), *command]

    @staticmethod
    def obstacle() -> str | None:
        """Return why programs of a system in a folder cannot run here; ``None`` if they can."""
        if shutil.which("unshare") is None:
            return "the program 'unshare' is not on PATH (apt-get install util-linux)"
        if os.geteuid() != 0:
            return "only root can run a server of a Debian system in a folder"
        if not all(path.is_symlink() for path in _MERGED):
            return "this system keeps /bin and /lib apart from /usr"
        return None


def cache_folder() -> Path:
    """Return the folder of fetched servers: ``STOMPKIT_SERVERS``, else in the user's cache."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    return user_caches() / "servers"


def fetched(server: str | None = None, cache: Path | None = None) -> list[Fetched]:
    """Return the servers in the cache folder, or those of one kind; the newest first."""
    cache = cache_folder() if cache is None else cache
    found = [_read(path) for path in sorted(cache.glob("*.json"))]
    complete = [each for each in found if each is not None and server in (None, each.server)]
    return sorted(complete, key=lambda each: version_key(each.version), reverse=True)


def version_key(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for comparison."""
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def is_of_version(version: str, wanted: str) -> bool:
    """Return True if *version* is *wanted* or one of its releases: 4.3.6 is a 4 and a 4.3."""
    return f"{version}.".startswith(f"{wanted}.") if wanted else True


def how_to_fetch(name: str) -> str:
    """Return the instruction for fetching a server that is not in the cache folder."""
    return f"in a checkout of stompkit, run: make servers SERVERS={name}"


def _record(cache: Path, name: str) -> Path:
    return cache / f"{name}.json"


def _read(path: Path) -> Fetched | None:
    """Return the server of a record; ``None`` if the record or the server is incomplete."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        found = Fetched(
            path.stem, record["server"], record["version"], path.parent / record["folder"]
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return found if found.folder.is_dir() else None
