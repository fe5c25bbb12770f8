"""Preloaded libraries that make system calls of programs fail."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["preload"]


def preload(source: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile a C source in a directory, and preload it into programs started from now on.

    Their environment variable ``STOMPKIT_FAIL`` is the path of a file there, which does not exist
    yet.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler: apt-get install gcc libc6-dev")
    path, library = directory / "failing.c", directory / "failing.so"
    path.write_text(source)
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(path), "-ldl"]
    subprocess.run(command, check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("STOMPKIT_FAIL", str(directory / "fail"))
