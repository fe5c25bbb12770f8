"""Disk space that is kept for operations that free space."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import lmdb

from stompkit.server.stores.record import NUMBER

__all__ = ["PART_OCTETS", "PART_OPERATIONS", "Reserve"]

#: Number of bytes kept: enough for everything that the log can hold, even with one page for each
#: message, and for some of the transactions that move it to the database.
RESERVE_OCTETS: Final = 4 * 1024 * 1024
#: Number of bytes allocated at a time, so that few commits have to.
_STEP_OCTETS: Final = RESERVE_OCTETS + 1024 * 1024
#: Size of a transaction that needs few pages: maximum number of its operations and of their bytes.
PART_OPERATIONS: Final = 8
PART_OCTETS: Final = 64 * 1024
#: Pages that every file has besides those of its trees.
_META_PAGES: Final = 2


class Reserve:
    """Blocks of the disk that belong to the database file, but have no content yet.

    LMDB never changes a page in place. On a full disk even a removal would fail without free
    pages, and nothing would ever free space. Messages are therefore refused while less than
    :data:`RESERVE_OCTETS` are free, in the file or behind its last page.
    """

    def __init__(self, path: Path, max_octets: int) -> None:
        """Describe the reserve of a file that may grow to ``max_octets``."""
        self._path = path
        self._max_octets = max_octets
        #: Length of the file in bytes up to which its blocks are allocated, as far as known.
        self._allocated = 0

    def is_kept(self, env: lmdb.Environment, databases: Iterable[lmdb._Database]) -> bool:
        """Allocate what is missing; return False if there is no space for it.

        Raises ``lmdb.Error`` or OSError.
        """
        page_octets = env.stat()["psize"]
        pages = env.info()["last_pgno"] + 1
        used = pages * page_octets
        if self._allocated - used >= RESERVE_OCTETS:
            return True
        if used + RESERVE_OCTETS > self._max_octets:
            # The limit of the file comes first; it can be exceeded by operations that free space.
            return True
        if self._allocate(used, _STEP_OCTETS) or self._allocate(used, RESERVE_OCTETS):
            return True
        behind = max(0, self._allocated - used)
        free = _free_pages(env, databases, pages, page_octets) * page_octets
        return behind + free >= RESERVE_OCTETS

    def release(self, env: lmdb.Environment) -> None:
        """Cut the file after its last used page, before it is closed.

        Raises ``lmdb.Error`` or OSError.
        """
        used = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
        if self._allocated > used:
            self._allocated = 0
            os.truncate(self._path, used)

    def _allocate(self, used: int, octets: int) -> bool:
        """Allocate that many bytes behind the used ones; return False if the disk has no space."""
        end = min(used + octets, self._max_octets)
        if hasattr(os, "posix_fallocate"):
            descriptor = os.open(self._path, os.O_RDWR)
            try:
                os.posix_fallocate(descriptor, used, end - used)
            except OSError:
                return False
            finally:
                os.close(descriptor)
        self._allocated = end
        return True


def _free_pages(
    env: lmdb.Environment, databases: Iterable[lmdb._Database], pages: int, page_octets: int
) -> int:
    """Return about how many of the file's pages have no content."""
    used = _META_PAGES
    with env.begin() as txn:
        for stat in (txn.stat(), *(txn.stat(each) for each in databases)):
            used += stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
    free = max(0, pages - used)
    # Some of these have the list of the others.
    return free - free * NUMBER.size // page_octets
