"""Java programs of this repository: built by Maven once, then kept in a cache folder."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["BuildMissing", "build"]

#: Timeout of Maven, in seconds; the first run downloads all packages.
_BUILD_S: Final = 540.0
#: Maven's messages if it cannot download a package.
_UNREACHABLE: Final = (
    "Could not transfer",
    "Could not resolve",
    "Non-resolvable",
    "could not be resolved",
    "or one of its dependencies",
)
#: Lines of Maven's errors that are shown.
_MAVEN_LINES: Final = 4


class BuildMissing(Exception):
    """Java, Maven or the packages are missing; the message says how to get them."""


def build(sources: Path, product: str) -> Path:
    """Return a file or folder that Maven makes in ``target``.

    It is kept, and built again when the sources have changed. ``sources`` has a ``pom.xml`` and a
    folder ``src``. Raises BuildMissing.
    """
    for program, package in (("java", "default-jdk-headless"), ("mvn", "maven")):
        if shutil.which(program) is None:
            raise BuildMissing(f"no program {program!r} on PATH: apt-get install {package}")
    folder = _cache() / f"{sources.name}-{_digest(sources)}"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / product
    with (folder / "lock").open("w") as lock:
        # Another process may be building it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _build(sources, made)
    return made


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "stompkit-tests"


def _files(sources: Path) -> list[Path]:
    files = [each for each in (sources / "src").rglob("*") if each.is_file()]
    return [sources / "pom.xml", *sorted(files)]


def _digest(sources: Path) -> str:
    digest = hashlib.sha256()
    for path in _files(sources):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(sources)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _build(sources: Path, made: Path) -> None:
    """Build in a temporary folder beside the product, and rename the complete product."""
    with tempfile.TemporaryDirectory(dir=made.parent) as name:
        folder = Path(name)
        for path in _files(sources):
            copy = folder / path.relative_to(sources)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        try:
            subprocess.run(
                ["mvn", "--batch-mode", "--quiet", "-Dmaven.test.skip=true", "package"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_BUILD_S,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            reason = [line for line in error.stdout.splitlines() if "ERROR" in line]
            if any(each in error.stdout for each in _UNREACHABLE):
                shown = "; ".join(reason[:_MAVEN_LINES])
                raise BuildMissing(f"Maven could not get a package: {shown}") from None
            raise AssertionError("\n".join(reason)) from None
        except subprocess.TimeoutExpired:
            raise BuildMissing(f"Maven did not finish in {_BUILD_S:.0f} s") from None
        (folder / "target" / made.name).replace(made)
