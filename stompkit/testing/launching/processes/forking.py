"""Twisted brokers, forked from a process that has imported Twisted; see ``forkserver.py``."""

from __future__ import annotations

import atexit
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple, TypedDict

from stompkit._common.clock import monotonic

__all__ = ["DIRECTORY", "ROOM", "ForkedGuard", "Request", "can_fork", "fork", "prepare_fork"]

#: Environment variable of every process of a broker that holds the broker's directory. A forked
#: process reserves *ROOM* bytes for it.
DIRECTORY: Final = "STOMPKIT_BROKER_DIRECTORY"
ROOM: Final = 4_096
#: Variables that disable forking: they take effect only when a process starts, or request it.
_STARTERS: Final = ("COV_CORE_", "COVERAGE_PROCESS_START", "STOMPKIT_NO_FORK")
#: Changes from test to test, and is therefore sent with each request.
_TEST: Final = "PYTEST_CURRENT_TEST"
_SERVER: Final = "stompkit.testing.launching.processes.forkserver"
#: Imports all that brokers need, including Twisted; the current module does not.
_IMPORTED: Final = "stompkit.testing.server.forkable"
_PREFIX: Final = [sys.executable, "-m", "twisted"]
_LIMITS: Final = sorted(
    {number for name, number in vars(resource).items() if name.startswith("RLIMIT_")}
)
#: Timeout in seconds for the start of a guard, including imports of the server.
_START_S: Final = 60.0
#: Interval in seconds between two checks: another thread may see the end.
_WAIT_S: Final = 0.05
#: Timeout in seconds for the end of a fork server that was killed.
_END_S: Final = 5.0


class Request(TypedDict):
    """Parameters of a broker process."""

    arguments: list[str]
    """Arguments of ``python -m twisted``."""
    directory: str
    """The directory with the broker's files."""
    working_directory: str
    grace_s: float
    test: str | None
    """The variable PYTEST_CURRENT_TEST."""


class ForkedGuard:
    """A forked guard with the methods of ``subprocess.Popen`` that are needed."""

    def __init__(self, orders: FileIO, status: FileIO) -> None:
        """Store the ends of the pipes: for orders to the guard, and for its status.

        Raises OSError if it was not forked.
        """
        self.stdin = orders
        self._status = status
        os.set_blocking(status.fileno(), False)
        self._lock = threading.Lock()
        self._lines: list[bytes] = []
        self._has_ended = False
        try:
            self._await_start()
        except BaseException:
            # A signal may end the wait. The guard ends with its orders.
            self.stdin.close()
            self._status.close()
            raise

    def _await_start(self) -> None:
        deadline = monotonic() + _START_S
        while not self._lines and not self._has_ended and monotonic() < deadline:
            self._read(_WAIT_S)
        if not self._lines:
            raise OSError("the process that forks brokers has ended, or does nothing")

    def poll(self) -> int | None:
        """Return the exit status of the command, or None if it has not ended."""
        self._read(0.0)
        if not self._has_ended:
            return None
        # A killed guard has not reported a status.
        return int(self._lines[1]) if len(self._lines) > 1 else -signal.SIGKILL

    def wait(self) -> int:
        """Wait for the end of the command."""
        while (code := self.poll()) is None:
            self._read(_WAIT_S)
        return code

    def kill(self) -> None:
        """Kill the guard; harmless when it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(int(self._lines[0]), signal.SIGKILL)

    def _read(self, timeout_s: float) -> None:
        """Read the guard's output if some comes in time; several threads may do so."""
        if timeout_s and not self._has_ended:
            # Not select(), which takes no descriptor above 1,023: tests can have many open.
            readable = select.poll()
            with suppress(ValueError):  # another thread has seen the end
                readable.register(self._status, select.POLLIN)
                readable.poll(timeout_s * 1000)
        with self._lock:
            if self._has_ended:
                return
            # Lines are short enough to come in one piece; several may come together.
            octets = self._status.read(64)
            self._lines += (octets or b"").split()
            if octets == b"":
                self._has_ended = True
                self._status.close()


class _Key(NamedTuple):
    """Properties that a process inherits from its parent, and that cannot be changed later."""

    owner: int
    identity: tuple[int, ...]
    environment: tuple[tuple[str, str], ...]
    limits: tuple[tuple[int, int], ...]
    umask: str
    processors: frozenset[int]
    priority: int


class _Server:
    """A process that forks brokers."""

    def __init__(self, key: _Key) -> None:
        """Start the process; raises OSError on failure."""
        self.key = key
        #: Guards that nobody refers to have lost their orders, and end.
        self._guards: weakref.WeakSet[ForkedGuard] = weakref.WeakSet()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _SERVER, str(theirs.fileno()), str(os.getpid()), _IMPORTED],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={**dict(key.environment), DIRECTORY: " " * ROOM},
                pass_fds=[theirs.fileno()],
                # Not in the terminal's process group: Ctrl-C lets the tests finish first.
                start_new_session=True,
            )

    def fork(self, request: Request, log: int, answers: int, lock: int) -> ForkedGuard:
        """Fork a guard; raises OSError on failure."""
        with ExitStack() as theirs, ExitStack() as ours:
            their_orders, our_orders = os.pipe()
            theirs.callback(os.close, their_orders)
            # Files, which are closed also if a signal comes before anybody refers to them.
            orders = ours.enter_context(open(our_orders, "wb", buffering=0))
            our_status, their_status = os.pipe()
            theirs.callback(os.close, their_status)
            status = ours.enter_context(open(our_status, "rb", buffering=0))
            descriptors = [their_orders, log, answers, their_status, lock]
            socket.send_fds(self._channel, [json.dumps(request).encode()], descriptors)
            ours.pop_all()
        try:
            guard = ForkedGuard(orders, status)
        except BaseException:
            # It would start this broker after its imports, only to end it.
            self._kill_if_idle()
            raise
        self._guards.add(guard)
        return guard

    def close(self) -> None:
        """Make it end as soon as its brokers have ended, immediately if none runs."""
        self._channel.close()
        self._kill_if_idle()

    def _kill_if_idle(self) -> None:
        is_idle = all(guard.poll() is not None for guard in self._guards)
        # A forked child of the owner only gives up the channel.
        if is_idle and self.key.owner == os.getpid():
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)

    @property
    def has_ended(self) -> bool:
        """True if the process has ended."""
        return self._process.poll() is not None


#: The last one forks; the others end when their brokers have ended.
_SERVERS: Final[list[_Server]] = []
_LOCK: Final = threading.Lock()


def can_fork(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return True if a command runs Twisted and needs no setup at interpreter start."""
    return (
        sys.platform == "linux"
        and list(command[: len(_PREFIX)]) == _PREFIX
        and not any(name.startswith(_STARTERS) for name in environment)
    )


def prepare_fork(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Start the process that forks this command, unless it runs or cannot fork it.

    It imports what brokers need while the caller does other work.
    """
    if can_fork(command, environment):
        # If it does not start, the fork fails, too.
        with _LOCK, suppress(OSError):
            _server(environment)


def fork(
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    working_directory: Path,
    *,
    grace_s: float,
    log: int,
    answers: int,
    lock: int,
) -> ForkedGuard:
    """Run a command of Twisted under a guard; raises OSError if it cannot be forked."""
    request = Request(
        arguments=list(command[len(_PREFIX) :]),
        directory=str(directory),
        working_directory=str(working_directory),
        grace_s=grace_s,
        test=environment.get(_TEST),
    )
    with _LOCK:
        return _server(environment).fork(request, log, answers, lock)


def _server(environment: Mapping[str, str]) -> _Server:
    """Return the fork server whose environment matches that of this process."""
    key = _Key(
        os.getpid(),
        (os.geteuid(), os.getegid(), *os.getgroups()),
        tuple(sorted(each for each in environment.items() if each[0] != _TEST)),
        tuple(resource.getrlimit(number) for number in _LIMITS),
        _umask(),
        frozenset(os.sched_getaffinity(0)),
        os.getpriority(os.PRIO_PROCESS, 0),
    )
    if _SERVERS and _SERVERS[-1].key == key and not _SERVERS[-1].has_ended:
        return _SERVERS[-1]
    if _SERVERS and _SERVERS[-1].key.owner != key.owner:
        # Servers of the process that this one was forked from are not used.
        for each in _SERVERS:
            each.close()
        _SERVERS.clear()
    if not _SERVERS:
        atexit.register(_close_all)
    else:
        _SERVERS[-1].close()
    _SERVERS[:] = [each for each in _SERVERS if not each.has_ended]
    _SERVERS.append(_Server(key))
    return _SERVERS[-1]


def _umask() -> str:
    """Return the umask as Linux reports it: the usual call would change it for other threads."""
    lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    return next((line for line in lines if line.startswith("Umask:")), "")


def _close_all() -> None:
    for each in _SERVERS:
        if each.key.owner == os.getpid():
            each.close()
