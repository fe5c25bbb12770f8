"""The load generator: a program in C, compiled on first use, and its report."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks._cache import cache

__all__ = ["GeneratorError", "generator", "held", "run"]

_DIRECTORY: Final = Path(__file__).resolve().parent
_FLAGS: Final = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra")
#: Default timeout of a run in seconds; the program ends by itself without progress.
_MOST_S: Final = 60.0


class GeneratorError(Exception):
    """The generator is unavailable, or reports a fault of a broker; the message explains it."""


def generator() -> Path:
    """Return the path of the program, compiled if these sources have not been compiled before.

    Raise :class:`GeneratorError` if there is no compiler.
    """
    sources = sorted(_DIRECTORY.glob("*.[ch]"))
    digest = hashlib.sha256(repr(_FLAGS).encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    try:
        program = cache() / f"load-{digest.hexdigest()[:16]}"
    except PermissionError as error:
        raise GeneratorError(str(error)) from None
    if not program.exists():
        _compile([source for source in sources if source.suffix == ".c"], program)
    return program


def _compile(sources: list[Path], program: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise GeneratorError(
            "the load generator is a program in C: install a C compiler, as by\n"
            "apt-get install gcc libc6-dev"
        )
    # A temporary name first, as another process may compile or run the same program.
    with tempfile.TemporaryDirectory(dir=program.parent) as directory:
        made = Path(directory) / "load"
        command = [compiler, *_FLAGS, "-o", str(made), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise GeneratorError(f"the load generator cannot be compiled:\n{done.stderr}")
        made.replace(program)


def run(*arguments: str, most_s: float = _MOST_S) -> dict[str, Any]:
    """Run the program; return its report.

    Raise :class:`GeneratorError` with its error output. A run of more than ``most_s`` is killed and
    raises the same error.
    """
    command = [str(generator()), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=most_s)
    except subprocess.TimeoutExpired:
        raise GeneratorError(f"it has taken more than {most_s:g} s") from None
    if done.returncode:
        raise GeneratorError(done.stderr.strip() or f"exit status {done.returncode}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@contextlib.contextmanager
def held(*arguments: str, most_s: float = _MOST_S) -> Iterator[dict[str, Any]]:
    """Keep idle connections open; yield the report of opening them.

    Raise :class:`GeneratorError` as :func:`run` does, and at the end if a connection was closed.
    """
    pipe = subprocess.PIPE
    command = [str(generator()), "idle", *arguments]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        late = threading.Timer(most_s, process.kill)
        late.start()
        try:
            line = process.stdout.readline()
            if line:
                yield json.loads(line)
            _, said = process.communicate("\n" if line else None)
        finally:
            late.cancel()
            process.kill()
    if process.returncode < 0:
        raise GeneratorError(f"it has taken more than {most_s:g} s")
    if process.returncode:
        raise GeneratorError(said.strip() or f"exit status {process.returncode}")
