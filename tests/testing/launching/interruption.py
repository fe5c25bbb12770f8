"""End ``stompkit run`` at every point of its execution, and find what it leaves behind.

    python -m tests.testing.launching.interruption SIGNAL WHEN STEP [TEXT]

A point is a line of the launcher, or of the standard library below it, or the return from a call in
such a line. The program runs the command once to find the points, or those that contain TEXT, for
example the name of a function or a module. It then runs the command once more for every STEP-th of
them, and sends SIGNAL to it there. With ``starved`` as WHEN, all processes that the command has
started are stopped before the signal. They continue after the command has ended, or after a second.
With ``now`` they are not stopped.

For each run in which a process or a file remains, or in which the command ends otherwise than by
the signal, it prints a line. The last line is the number of runs. Linux only.
"""

from __future__ import annotations

import dis
import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NoReturn

import stompkit
from stompkit._commands.tools import run
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.launching.processes.guard import adopt_orphans

__all__ = ["main"]

#: The broker is stopped before this command runs.
_COMMAND: Final = ["--", "true"]
_PACKAGE: Final = Path(stompkit.__file__).parent
_OURS: Final = tuple(
    str(_PACKAGE / each) for each in ("testing/launching/", "_commands/tools/run.py")
)
_LIBRARY: Final = tuple(
    str(Path(os.__file__).parent / name) for name in ("tempfile.py", "subprocess.py", "shutil.py")
)
_CALLS: Final = {"CALL", "CALL_FUNCTION_EX", "BEFORE_WITH"}
#: Limit in seconds for all processes to end.
_END_S: Final = 300.0
#: Time in seconds after which stopped processes continue, as the command may wait for them.
_STARVED_S: Final = 1.0


class Points:
    """A trace function that counts points, each at its first occurrence, and stops at one."""

    def __init__(self, wanted: str, act: Callable[[], None]) -> None:
        """Call ``act`` at the point with this name."""
        self.found: list[str] = []
        self._seen: set[tuple[CodeType, int, str]] = set()
        self._returns: dict[CodeType, set[int]] = {}
        self._wanted = wanted
        self._act = act

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        """Trace the functions of the files in question, also those in libraries."""
        path = frame.f_code.co_filename
        if not path.startswith(_OURS + _LIBRARY):
            return None
        frame.f_trace_opcodes = path.startswith(_OURS)
        return self._trace

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        code, path = frame.f_code, frame.f_code.co_filename
        position = frame.f_lasti if event == "opcode" else frame.f_lineno
        is_point = event == "line" or (event == "opcode" and position in self._after_calls(code))
        if is_point and (code, position, event) not in self._seen:
            self._seen.add((code, position, event))
            name = f"{_function_of(frame)} {Path(path).name}:{frame.f_lineno} {event} {position}"
            self.found.append(name)
            if name == self._wanted:
                # A signal's handler runs in the traced function.
                sys.settrace(None)
                self._act()
        return self._trace

    def _after_calls(self, code: CodeType) -> set[int]:
        """Return the instructions before which Python runs handlers of signals."""
        if code not in self._returns:
            instructions = list(dis.get_instructions(code))
            self._returns[code] = {
                after.offset for call, after in pairwise(instructions) if call.opname in _CALLS
            }
        return self._returns[code]


def _function_of(frame: FrameType) -> str:
    """Return the name of the function of the launcher that this frame belongs to."""
    found: FrameType | None = frame
    while found is not None and not found.f_code.co_filename.startswith(_OURS):
        found = found.f_back
    return "" if found is None else found.f_code.co_name


class Ending:
    """Runs of the command, each in a forked process that gets the same signal."""

    def __init__(self, folder: Path, number: signal.Signals, *, is_starved: bool) -> None:
        """Use ``folder``, which does not exist, as the directory of temporary files."""
        self._folder = folder
        self._signal = number
        self._is_starved = is_starved

    def points(self) -> list[str]:
        """Run the command undisturbed; return its points."""
        reported, _ = self._run("")
        return reported.splitlines()

    def problem_at(self, point: str, *, is_early: bool) -> str:
        """Return what a run that is ended at this point leaves behind; empty if nothing.

        An early point is one before the start of the command.
        """
        reported, status = self._run(point)
        rest = [] if wait_until(_none_is_left, _END_S) else _kill_all()
        files = sorted(str(each.relative_to(self._folder)) for each in self._folder.rglob("*"))
        shutil.rmtree(self._folder)
        # A late signal is for the command, which may have ended. An early one is never lost, except
        # Python's own exception in a destructor. Some lines depend on the time and are not reached.
        may_end = not (reported and is_early) or self._signal == signal.SIGINT
        is_usual = status in (-self._signal, 128 + self._signal) or (status == 0 and may_end)
        if is_usual and not files and not rest:
            return ""
        return f"{point}: status {status}, files {files}, processes {rest}"

    def _run(self, point: str) -> tuple[str, int]:
        """Return the points that were found, and the exit status or minus a signal's number."""
        self._folder.mkdir(exist_ok=True)
        read_end, report = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            self._be_command(point, report)
        os.close(report)
        with open(read_end, encoding="utf-8") as file:
            reported = "" if point else file.read()
            while not (ended := wait_until(lambda: _status_of(pid), _STARVED_S)):
                # It may wait for a process that was stopped.
                _continue_all()
            if point:
                # Other processes may still have the other end.
                os.set_blocking(read_end, False)
                reported = file.read() or ""
        _continue_all()
        return reported, os.waitstatus_to_exitcode(ended[0])

    def _be_command(self, point: str, report: int) -> NoReturn:
        """Run the command in this process, and exit as it does."""

        def act() -> None:
            os.write(report, b"reached")
            for each in _descendants() if self._is_starved else []:
                os.kill(each, signal.SIGSTOP)
            os.kill(os.getpid(), self._signal)

        os.environ["TMPDIR"] = str(self._folder)
        points = Points(point, act)
        sys.settrace(points)
        try:
            status = run.main(_COMMAND)
        except KeyboardInterrupt:
            # As all commands do.
            status = 128 + signal.SIGINT
        finally:
            sys.settrace(None)
        if not point:
            with open(report, "w", encoding="utf-8") as file:
                file.write("\n".join(points.found))
        sys.exit(status)


def _descendants() -> list[int]:
    """Return all processes below this one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(entry.read_text("latin-1").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    found = list(children.get(os.getpid(), []))
    for each in found:
        found += children.get(each, [])
    return found


def _status_of(pid: int) -> list[int]:
    """Return the status of a child in a list, which is empty while the child runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return [status] if ended else []


def _continue_all() -> None:
    for each in _descendants():
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGCONT)


def _none_is_left() -> bool:
    """Collect what has ended; orphans are children of this process."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _kill_all() -> list[str]:
    """Kill the processes that remain; return their command lines."""
    found = []
    for each in _descendants():
        with suppress(OSError):
            found.append(Path(f"/proc/{each}/cmdline").read_text().replace("\0", " "))
            os.kill(each, signal.SIGKILL)
    wait_until(_none_is_left, _END_S)
    return found


def main(number: signal.Signals, when: str, step: int, text: str = "") -> None:
    """Run the program in an empty directory."""
    adopt_orphans()
    ending = Ending(Path("temporary").absolute(), number, is_starved=when == "starved")
    found = ending.points()
    start = next(index for index, each in enumerate(found) if each.startswith("_run run.py"))
    early = set(found[:start])
    points = [each for each in found if text in each][::step]
    for point in points:
        if problem := ending.problem_at(point, is_early=point in early):
            print(problem, flush=True)
    print(len(points))


if __name__ == "__main__":
    main(signal.Signals[sys.argv[1]], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
