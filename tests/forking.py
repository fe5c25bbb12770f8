"""Fork ``stompkit``, ``twist`` and ``twistd`` from a process that has imported their modules.

Imports are nine tenths of the processor time of a short command, and tests run hundreds of them.
:func:`install` replaces ``subprocess.Popen``, so that all tests profit. The matrix lane starts all
processes as users do; STOMPKIT_NO_FORK=1 does the same elsewhere.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict, cast

__all__ = ["Request", "install"]

#: Programs that are forked: ``python -m MODULE``, and ``python SCRIPT``.
_MODULES: Final = ("stompkit", "stompkit.conformance", "twisted")
_SCRIPTS: Final = (str(Path(sysconfig.get_path("scripts"), "twistd")),)
#: Variables that disable forking: they take effect only when a process starts, or request it.
_STARTERS: Final = ("COV_CORE_", "COVERAGE_PROCESS_START", "STOMPKIT_NO_FORK")
#: Variables of Python that take effect without a start.
_HARMLESS: Final = ("PYTHONPATH", "PYTHONUNBUFFERED")
_ROOT: Final = str(Path(__file__).resolve().parents[1])
#: Interval in seconds between two checks whether the server has ended.
_CHECK_S: Final = 1.0


class Request(TypedDict):
    """A command, as :func:`subprocess.Popen` takes it."""

    program: str
    """A module, or the path of a script."""
    arguments: list[str]
    directory: str
    environment: dict[str, str]
    path: list[str]
    """Further entries of the module search path."""
    is_session: bool
    """Start a new session."""
    is_strict: bool
    """Turn warnings into errors, as the option ``-W error`` does."""


class _Result(NamedTuple):
    """A forked process: its id, and the pipe from which its status is read."""

    pid: int
    status: int


class _Server:
    """The process that forks; it starts with the first command."""

    def __init__(self) -> None:
        """Start the process."""
        self.owner = os.getpid()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        flags = ["-P"] if sys.flags.safe_path else []
        with theirs:
            self._process = _REAL(
                [sys.executable, *flags, "-m", "tests.forking_server", str(theirs.fileno())],
                cwd=_ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(_path(os.environ))},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def fork(self, request: Request, streams: Sequence[int]) -> _Result:
        """Fork a process with three standard streams."""
        status, theirs = os.pipe()
        try:
            packet = json.dumps(request).encode()
            socket.send_fds(self._channel, [packet], [*streams, theirs])
        finally:
            os.close(theirs)
        # The first request waits for all imports, which take long on a busy machine.
        while (line := _line(status, time.monotonic() + _CHECK_S)) is None:
            if self._process.poll() is not None:
                break
        if not line:
            os.close(status)
            raise RuntimeError("the process that forks commands has ended")
        return _Result(int(line), status)

    def close(self) -> None:
        """End the process; its forked processes continue."""
        self._channel.close()
        self._process.wait()


class _Popen(subprocess.Popen[Any]):
    """A process that is forked if it runs one of the modules, and started otherwise."""

    is_over = False
    """True when this process ends; modules may be destroyed before objects."""
    _status: int | None = None

    # The two methods by which subprocess.Popen starts a process and asks for its end: everything
    # else, such as pipes, text and timeouts, stays that of the standard library.

    def _execute_child(self, args: Any, *rest: Any) -> None:
        executable, preexec_fn, _, pass_fds, cwd, env, _, _, shell = rest[:9]
        pipes = rest[9:15]
        p2cread, _, _, c2pwrite, _, errwrite = pipes
        _, gid, gids, uid, umask, is_session, process_group = rest[15:22]
        is_plain = (
            executable is None
            and preexec_fn is None
            and not pass_fds
            and not shell
            and gid is gids is uid is None
            and umask == process_group == -1
        )
        request = _request(args, cwd, env, is_session=bool(is_session)) if is_plain else None
        if request is None:
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        streams = (
            own if other == -1 else other for own, other in enumerate((p2cread, c2pwrite, errwrite))
        )
        self.pid, self._status = _server().fork(request, list(streams))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *arguments: Any, **options: Any) -> int | None:
        if self._status is None:
            # No name of this module may be used here: at the end of Python it is empty.
            return super()._internal_poll(*arguments, **options)  # type: ignore[misc, no-any-return]
        if self.returncode is None and not self.is_over:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._status is None:
            return cast("tuple[int, int]", super()._try_wait(wait_flags))  # type: ignore[misc]
        deadline = 0.0 if wait_flags & os.WNOHANG else float("inf")
        line = _line(self._status, deadline)
        if line is None:
            return 0, 0
        os.close(self._status)
        self._status = None
        return self.pid, int(line or signal.SIGKILL)


_REAL: Final = subprocess.Popen
_SERVERS: Final[list[_Server]] = []
_STARTING: Final = threading.Lock()


def install() -> None:
    """Let all processes of tests that can be forked be forked, on Linux."""
    is_wanted = not any(name.startswith(_STARTERS) for name in os.environ)
    if sys.platform == "linux" and is_wanted and subprocess.Popen is _REAL:
        subprocess.Popen = _Popen  # type: ignore[misc]


def _server() -> _Server:
    """Return the server of this process; one that another process has started is not used."""
    # Several threads may start their first commands at the same time.
    with _STARTING:
        if not _SERVERS or _SERVERS[-1].owner != os.getpid():
            _SERVERS[:] = [_Server()]
            atexit.register(_close, os.getpid())
        return _SERVERS[-1]


def _close(owner: int) -> None:
    if os.getpid() == owner:
        _Popen.is_over = True
        for each in _SERVERS:
            each.close()


def _request(
    args: object, cwd: object, env: Mapping[str, str] | None, *, is_session: bool
) -> Request | None:
    """Return the request for a command; None if it has to be started."""
    environment = os.environ if env is None else env
    if not isinstance(args, list | tuple):
        return None
    is_strict = False
    match [*map(os.fspath, args)]:
        case [sys.executable, "-m", program, *arguments] if program in _MODULES:
            pass
        case [sys.executable, "-W", "error", "-m", program, *arguments] if program in _MODULES:
            is_strict = True
        case [sys.executable, program, *arguments] if program in _SCRIPTS:
            pass
        case _:
            return None
    differing = {
        name
        for name in environment.keys() | os.environ.keys()
        if name.startswith("PYTHON")
        and name not in _HARMLESS
        and environment.get(name) != os.environ.get(name)
    }
    if differing or any(name.startswith(_STARTERS) for name in environment):
        return None
    path = _path(environment)
    # Others may hide modules that are imported already.
    if not {*path} <= {_ROOT, *_path(os.environ)}:
        return None
    return Request(
        program=program,
        arguments=arguments,
        directory=os.fspath(cast("str", cwd)) if cwd else os.getcwd(),
        environment=dict(environment),
        path=path,
        is_session=is_session,
        is_strict=is_strict,
    )


def _path(environment: Mapping[str, str]) -> list[str]:
    return [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]


def _line(descriptor: int, deadline: float) -> bytes | None:
    """Read a line, of at most 32 bytes; None if none comes in time, empty at the end."""
    readable = select.poll()
    readable.register(descriptor, select.POLLIN)
    while True:
        left_s = deadline - time.monotonic()
        with suppress(InterruptedError):
            if readable.poll(None if left_s == float("inf") else max(0.0, left_s * 1000)):
                break
        if left_s <= 0:
            return None
    line = b""
    while not line.endswith(b"\n") and (octet := os.read(descriptor, 1)):
        line += octet
    return line.strip()
