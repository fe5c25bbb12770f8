"""Settings of the C library's memory allocator for a broker."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

__all__ = ["keep_freed_memory"]

# Parameters of mallopt(3), in glibc.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3

#: Size in bytes of freed memory at the end of the heap that is kept, and size of a block from which
#: it is allocated apart and returned at once.
_KEPT_BYTES: Final = 32 << 20
_APART_BYTES: Final = 16 << 20


def keep_freed_memory() -> None:
    """Make the allocator keep some freed memory; does nothing without glibc.

    By default glibc returns the memory of a large body to the kernel as soon as it is freed, and
    the kernel clears each page for the next one. This takes longer than copying the body.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 (missing in other libraries)
        libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_MMAP_THRESHOLD, _APART_BYTES)
