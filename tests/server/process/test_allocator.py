"""Freed memory of large bodies is kept, so that the kernel need not provide it again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

#: Frees and allocates bodies of 1 MiB, some at a time; prints the number of page faults.
PROGRAM = """
import resource, sys
from stompkit.server.process.allocator import keep_freed_memory
if "kept" in sys.argv:
    keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        bodies = [b"x" * (1 << 20) for _ in range(8)]
        del bodies
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(*arguments: str) -> int:
    """Run the program in a process of its own; return its second number of page faults."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return int(subprocess.run(command, check=True, capture_output=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_memory_of_large_bodies_is_used_again() -> None:
    assert page_faults("kept") * 10 < page_faults()
