"""The package as in a wheel: a tree with compiled modules, built on first use.

``python -m benchmarks._compiled`` builds it, and prints its path.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from benchmarks._cache import cache
from benchmarks._report import progress, unusable
from stompkit import is_compiled

__all__ = ["Uncompilable", "environment", "measure_compiled", "tree"]

_ROOT: Final = Path(__file__).resolve().parents[1]
#: Trees of other sources are removed when they are older than this, in seconds.
_KEPT_S: Final = 7 * 86_400.0
_BUILD: Final = ("setup.py", "--quiet", "build", "--build-lib", "lib", "--build-temp", "temp")


class Uncompilable(Exception):
    """Compilation is impossible here; the message gives the reason."""


def measure_compiled(module: str) -> None:
    """Restart the program with the compiled package, unless it runs so already.

    Users who install a wheel have that package. With ``STOMPKIT_PURE=1`` the source is measured.
    """
    if is_compiled() or os.environ.get("STOMPKIT_PURE", "") not in ("", "0"):
        return
    try:
        path = environment()
    except Uncompilable as reason:
        raise unusable(f"{reason}\nWith STOMPKIT_PURE=1 it is measured as Python.") from None
    command = [sys.executable, "-P", "-m", module, *sys.argv[1:]]
    os.execve(sys.executable, command, os.environ | path)


def environment() -> dict[str, str]:
    """Return the environment for ``python -P`` to import the tree, and then the checkout."""
    paths = [str(tree()), str(_ROOT), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def tree() -> Path:
    """Return the directory to import from; raise :class:`Uncompilable`."""
    try:
        folder = cache()
    except PermissionError as error:
        raise Uncompilable(str(error)) from None
    made = folder / f"compiled-{_digest()}"
    # A lock for each: nobody waits for the compilation of another checkout.
    with (folder / f"{made.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _remove_old(folder)
            progress("compiling, which takes about half a minute")
            with tempfile.TemporaryDirectory(dir=folder) as directory:
                _compile(Path(directory)).replace(made)
            progress()
    return made


def _digest() -> str:
    """Return a digest of the sources, the version of mypy and the build of Python."""
    try:
        mypy = version("mypy")
    except PackageNotFoundError:
        raise Uncompilable("mypyc compiles it: pip install 'mypy[mypyc]'") from None
    level = os.environ.get("STOMPKIT_COMPILE_LEVEL", "")
    digest = hashlib.sha256(f"{sys.version} {sysconfig.get_platform()} {mypy} {level}".encode())
    for source in [_ROOT / "setup.py", *sorted((_ROOT / "stompkit").rglob("*.py"))]:
        digest.update(str(source).encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def _compile(directory: Path) -> Path:
    """Compile a copy, so that the checkout stays unchanged."""
    wanted = ("stompkit", "conformance", "twisted", "setup.py", "setup.cfg", "pyproject.toml")
    for name in (*wanted, "pyspark_stompkit.py", "README.rst"):
        source = _ROOT / name
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, directory)
    done = subprocess.run(
        [sys.executable, *_BUILD],
        cwd=directory,
        env={**os.environ, "STOMPKIT_COMPILE": "1", "STOMPKIT_PURE": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise Uncompilable(f"it cannot be compiled here:\n{done.stdout}")
    return directory / "lib"


def _remove_old(folder: Path) -> None:
    for path in folder.glob("compiled-*"):
        if path.stat().st_mtime < time.time() - _KEPT_S:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


if __name__ == "__main__":
    try:
        print(tree())
    except Uncompilable as reason:
        raise unusable(str(reason)) from None
