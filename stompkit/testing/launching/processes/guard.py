"""Run a command that must not outlive the process that requested it.

    python -I guard.py [--grace SECONDS] [--parent PID] [--answers DESCRIPTOR]
                       -- COMMAND [ARGUMENT ...]

The command runs in a separate session.  It is ended, with all its descendants, when

- standard input of this program reaches its end, or its parent changes or is not the process of
  ``--parent``: the requesting process has ended, for any reason;
- the letter ``s``, for stop, comes on standard input, or this program gets SIGTERM, SIGINT or
  SIGHUP.

The process group then gets SIGTERM, and after the grace period (10 seconds) the remaining processes
get SIGKILL.  The letter ``k``, for kill, means SIGKILL immediately.  If the command ends by itself,
or goes to the background, its remaining descendants get SIGKILL, too.  This program then ends as
the command did, by the same exit status or the same signal.

Four more letters act on the command and all its descendants without ending them:

- ``p``, pause: all get SIGSTOP;  ``c``, continue: all get SIGCONT;
- ``f``, full: writes to files fail, as if the disk were full;  ``e``, empty: they succeed again.

Each of these is answered by one line on the descriptor of ``--answers``: an empty line on success,
otherwise the reason of the failure.

Processes that leave the group, as daemons do, are found on Linux only, where this program becomes
the parent of orphans.  Standard library only: it runs under ``python -I``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from enum import Enum

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_USAGE = (
    "usage: guard.py [--grace SECONDS] [--parent PID] [--answers DESCRIPTOR]"
    " -- COMMAND [ARGUMENT ...]"
)
_GRACE_S = 10.0
_STDIN = 0
#: Interval in seconds between two checks of the parent process: a process that the parent forked
#: may keep the pipe open.
_PARENT_CHECK_S = 0.5
#: Interval in seconds between two checks of a group whose members may not be children.
_GROUP_CHECK_S = 0.05
#: Timeout in seconds for killing: a process in an uninterruptible wait may not end at all.
_KILL_S = 10.0
#: Timeout in seconds for stopping all processes, for the same reason.
_PAUSE_S = 5.0
#: Interval in seconds between two checks for that.
_PAUSE_CHECK_S = 0.002
#: States in /proc of a thread that is stopped, traced, or ending.
_STANDING = (b"T", b"t", b"Z", b"X", b"x")


class Why(Enum):
    """Reason why the guard stopped watching."""

    ENDED = "the command ended"
    STOP = "the guard was ordered to stop it"
    KILL = "the guard was ordered to kill it"


class Guard:
    """One command and everything that it started."""

    def __init__(
        self, start: Callable[[], int], grace_s: float, parent: int, answers: int | None = None
    ) -> None:
        """Start a command by calling ``start``, which returns its process id.

        An OSError that it raises is propagated. ``parent`` is the process with which the command
        ends.
        """
        self._grace_s = grace_s
        self._answers = answers
        self._words: dict[bytes, Callable[[], None]] = {
            b"p": self._pause,
            b"c": self._resume,
            b"f": self._fill,
            b"e": self._empty,
        }
        self._parent = parent
        self._status: int | None = None
        self._stop = False
        # Signals must wake select(), also those that arrive just before it.
        self._wake, wake_write = os.pipe()
        for descriptor in (self._wake, wake_write):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_stop)
        adopt_orphans()
        self._pid = start()

    def run(self) -> int:
        """Watch the command until it ends.

        Returns its exit status, or minus the number of a signal; 1 if it is unavailable.
        """
        why = self._watch()
        if why is Why.STOP:
            self._terminate()
        self._kill()
        return 1 if self._status is None else os.waitstatus_to_exitcode(self._status)

    def _has_other_parent(self) -> bool:
        """Return True if the process that started this one has gone."""
        return os.getppid() != self._parent

    def _on_stop(self, *_: object) -> None:
        """Handle a signal that requests the end."""
        self._stop = True

    def _watch(self) -> Why:
        """Wait for the first reason to stop watching."""
        while True:
            readable = self._wait(_PARENT_CHECK_S, _STDIN)
            self._reap()
            if self._status is not None:
                return Why.ENDED
            word = os.read(_STDIN, 1) if _STDIN in readable else None
            if word == b"k":
                return Why.KILL
            if self._stop or word in (b"s", b"") or self._has_other_parent():
                return Why.STOP
            act = self._words.get(word or b"")
            if act is not None:
                self._do(act)

    def _do(self, act: Callable[[], None]) -> None:
        """Perform the action of a letter and report the result."""
        answer = ""
        try:
            act()
        except OSError as error:
            answer = error.strerror or str(error)
        if self._answers is not None:
            # An error means that the reader has gone.
            with contextlib.suppress(OSError):
                os.write(self._answers, f"{answer}\n".encode())

    def _pause(self) -> None:
        """Stop all processes; return when none of them runs any more."""
        deadline = time.monotonic() + _PAUSE_S
        while True:
            # Repeat this: a process that has not stopped yet may have started another.
            self._signal_all(signal.SIGSTOP)
            if not any(_is_running(pid) for pid in self._family()):
                return
            if time.monotonic() >= deadline:
                self._resume()
                raise OSError(f"a process has not stopped in {_PAUSE_S:g} seconds")
            time.sleep(_PAUSE_CHECK_S)

    def _resume(self) -> None:
        """Resume all processes."""
        self._signal_all(signal.SIGCONT)

    def _fill(self) -> None:
        """Make all writes to files fail."""
        self._limit_files(0)

    def _empty(self) -> None:
        """Allow writes to files up to the hard limits."""
        self._limit_files(None)

    def _limit_files(self, limit_bytes: int | None) -> None:
        """Limit the size of the files that all processes write, below their hard limits."""
        if sys.platform != "linux":
            raise OSError("only Linux can bound the files of a process that runs")
        done: set[int] = set()
        # Repeat until there is no new process: one may have been started before its parent was
        # limited.
        while pids := set(self._family()) - done:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                    soft = hard if limit_bytes is None else limit_bytes
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
            done |= pids

    def _signal_all(self, number: int) -> None:
        """Send a signal to the process group and to the processes that have left it."""
        self._signal_group(number)
        for pid in self._family():
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def _family(self) -> list[int]:
        """Return the command and all its descendants, as far as /proc shows them."""
        children: dict[int, list[int]] = {}
        for pid, parent in _processes():
            children.setdefault(parent, []).append(pid)
        found = children.get(os.getpid(), [])
        for pid in found:
            # The list grows during the iteration.
            found += children.get(pid, [])
        return found

    def _terminate(self) -> None:
        """Terminate the process group and wait for the grace period."""
        self._signal_group(signal.SIGTERM)
        # A paused process would not handle the signal.
        self._resume()
        deadline = time.monotonic() + self._grace_s
        while time.monotonic() < deadline:
            self._reap()
            if not self._signal_group(0):
                return
            self._wait(_GROUP_CHECK_S)

    def _kill(self) -> None:
        """Kill the group and the processes that left it, generation by generation."""
        deadline = time.monotonic() + _KILL_S
        while time.monotonic() < deadline:
            alive = self._signal_group(signal.SIGKILL)
            for pid in _children():
                # The process has not been waited for, so its id cannot have been reused.
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            if self._reap() and not alive:
                return
            self._wait(_GROUP_CHECK_S)

    def _wait(self, timeout_s: float, *descriptors: int) -> list[int]:
        """Wait for a signal or for input; return the readable descriptors."""
        arrival = select.poll()  # select refuses descriptors above 1,023
        for each in (self._wake, *descriptors):
            arrival.register(each, select.POLLIN)
        readable = [each for each, _ in arrival.poll(timeout_s * 1_000)]
        if self._wake in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 512)
        return readable

    def _reap(self) -> bool:
        """Collect children that have ended; return True if no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._pid:
                self._status = status

    def _signal_group(self, number: int) -> bool:
        """Send a signal to the process group; return True if it has members."""
        try:
            # The group's id is that of the command, and is not reused while the group has members.
            os.killpg(self._pid, number)
        except OSError:
            return False
        return True


def adopt_orphans() -> None:
    """On Linux, become the parent of orphaned descendants."""
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def depend_on(guard: int) -> None:
    """On Linux, make the kernel kill this process with the guard, and ignore a full disk.

    The guard's process has forked this one.
    """
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != guard:
            # It ended before that.
            os._exit(1)
        # Writing beyond the limit must fail, as on a full disk, and not end the process.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _starting(command: list[str]) -> Callable[[], int]:
    """Return a function that starts a command in its own session."""
    guard = os.getpid()

    def start() -> int:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: depend_on(guard),
        )
        # This program waits for the process.
        process.returncode = 0
        return process.pid

    return start


def _processes() -> list[tuple[int, int]]:
    """Return all processes, each with its parent, as far as /proc shows them."""
    found = []
    try:
        numbers = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError:
        return []
    for pid in numbers:
        stat = _stat(f"/proc/{pid}/stat")
        if stat is not None:
            found.append((pid, int(stat[1])))
    return found


def _children() -> list[int]:
    """Return the direct children of this process."""
    return [pid for pid, parent in _processes() if parent == os.getpid()]


def _is_running(pid: int) -> bool:
    """Return True if a thread of a process is neither stopped nor ending."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    stats = [_stat(f"/proc/{pid}/task/{thread}/stat") for thread in threads]
    return any(stat is not None and stat[0] not in _STANDING for stat in stats)


def _stat(path: str) -> list[bytes] | None:
    """Return state, parent and more of a process or a thread; ``None`` if it has ended."""
    try:
        with open(path, "rb") as file:
            # The name, in parentheses, can contain any characters.
            return file.read().rpartition(b")")[2].split() or None
    except OSError:
        return None


def _end_like(code: int) -> int:
    """Return the exit status of the command, or end by the same signal as the command."""
    if code >= 0:
        return code
    # The command has written a core file, if enabled.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code


def main(arguments: list[str]) -> int:
    """Run the program; return its exit status: 2 for wrong usage, 127 for an unknown command."""
    options = {"--grace": str(_GRACE_S), "--parent": str(os.getppid()), "--answers": ""}
    try:
        while arguments[0] != "--":
            options[arguments[0]] = arguments[1]
            arguments = arguments[2:]
        command = arguments[1:]
        grace_s = float(options.pop("--grace"))
        parent = int(options.pop("--parent"))
        answers = options.pop("--answers")
        descriptor = int(answers) if answers else None
        if options or not command:
            raise ValueError
    except (ValueError, IndexError):
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        guard = Guard(_starting(command), grace_s, parent, descriptor)
    except OSError as error:
        print(f"cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    return _end_like(guard.run())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
