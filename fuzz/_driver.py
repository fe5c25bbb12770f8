"""One target under libFuzzer, by atheris; and single inputs without it.

The limits of libFuzzer use wall-clock time. This driver counts processor time, so a busy machine
finds no hangs and ends no run early.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from twisted.logger import globalLogBeginner

from fuzz._targets import TARGETS, load

__all__ = ["HANG_S", "Hang", "main", "run_files"]

#: Limit on the processor time of one input, in seconds.
HANG_S: Final = 1.0
#: The same under libFuzzer, where counting the branches takes time.
_TRACED_HANG_S: Final = 5.0
_NEEDED = (
    "This takes atheris, which has wheels for CPython on Linux: pip install atheris\n"
    "Without it, only files can be tried: python -m fuzz.{name} FILE..."
)


class Hang(BaseException):
    """Raised for an input that takes too long; no ``except Exception`` may catch it."""


def main(file: str) -> NoReturn:
    """Run ``python -m fuzz.NAME``: try files, or start libFuzzer if none are given."""
    name = Path(file).stem
    given = [each for each in sys.argv[1:] if not each.startswith("-")]
    if given and all(Path(each).is_file() for each in given):
        sys.exit(run_files(name, given))
    # In a new process: atheris counts branches only in modules imported later.
    os.execv(sys.executable, [sys.executable, "-m", "fuzz._driver", name, *sys.argv[1:]])


def run_files(name: str, paths: list[str]) -> int:
    """Try inputs one after the other, without atheris; an exception ends the run."""
    check = load(name).check
    for path in paths:
        data = Path(path).read_bytes()
        begin = time.process_time()
        limited(check, data, HANG_S)
        print(f"{path}: {len(data)} octets, {time.process_time() - begin:.3f} s")
    return 0


def limited(check: Callable[[bytes], None], data: bytes, most_s: float) -> None:
    """Try an input; raises :class:`Hang` if it takes more than *most_s* of processor time."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang(f"more than {most_s:g} seconds for {len(data)} octets")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, most_s)
    try:
        check(data)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _fuzz(name: str, arguments: list[str]) -> None:
    """Run libFuzzer until its time is over or it has a finding."""
    try:
        import atheris
    except ImportError:
        sys.exit(_NEEDED.format(name=name))
    target = TARGETS[name]
    seconds = float(os.environ.get("FUZZ_CPU_SECONDS", "inf"))
    with _quiet(), atheris.instrument_imports(include=list(target.packages)):
        module = load(name)
    folders = [each for each in arguments if not each.startswith("-")]
    if not folders:
        folders = [tempfile.mkdtemp(prefix="stompkit-fuzz-")]
    if not any("merge" in each for each in arguments):
        for number, seed in enumerate(module.SEEDS):
            Path(folders[0], f"seed-{number:03}").write_bytes(seed)
    is_ending = False

    def one(data: bytes) -> None:
        nonlocal is_ending
        limited(module.check, data, _TRACED_HANG_S)
        if not is_ending and time.process_time() > seconds:
            is_ending = True
            # On this signal, libFuzzer prints its statistics and ends.
            os.kill(os.getpid(), signal.SIGUSR1)

    # Until logging begins, Twisted keeps all events and the objects they refer to.
    globalLogBeginner.beginLoggingTo([], discardBuffer=True, redirectStandardIO=False)
    options = [f"-max_len={target.most_octets}", "-print_final_stats=1", "-timeout=3600"]
    chosen = [each for each in arguments if each.startswith("-")]
    # The command by which libFuzzer restarts itself to compare inputs.
    command = shlex.join([sys.executable, "-m", "fuzz._driver", name])
    atheris.Setup([command, *options, *chosen, *folders], one)
    atheris.Fuzz()


class _quiet:
    """Suppresses atheris' messages about each imported module."""

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._kept = os.dup(2)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()
        os.dup2(self._kept, 2)
        os.close(self._kept)


if __name__ == "__main__":
    _fuzz(sys.argv[1], sys.argv[2:])
