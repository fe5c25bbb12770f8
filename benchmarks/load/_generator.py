"""The load generator: a program in C, compiled when it is first needed, and what it reports."""

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
#: What a run may take, in seconds, unless told; it ends by itself where nothing moves.
_MOST_S: Final = 60.0


class GeneratorError(Exception):
    """The generator can't be had, or says that a broker does wrong; the message tells."""


def generator() -> Path:
    """The program; compiled if these sources have not been compiled before.

    Raises :class:`GeneratorError` where there is no compiler.
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
    # By another name first: somebody else may compile, or run, the same.
    with tempfile.TemporaryDirectory(dir=program.parent) as directory:
        made = Path(directory) / "load"
        command = [compiler, *_FLAGS, "-o", str(made), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise GeneratorError(f"the load generator can't be compiled:\n{done.stderr}")
        made.replace(program)


def run(*arguments: str, most_s: float = _MOST_S) -> dict[str, Any]:
    """Run it; gives its report. Raises :class:`GeneratorError` with what it has to say.

    It is ended, and that is such an error, when it takes more than ``most_s``.
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
    """Have idle connections open; gives the report of how they were opened.

    Raises :class:`GeneratorError` as :func:`run` does, and in the end where one was closed.
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
