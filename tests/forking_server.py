"""The process that forks commands; see ``forking.py``.

    python -m tests.forking_server DESCRIPTOR

The descriptor is a socket of type SOCK_SEQPACKET. Each packet is a Request in JSON, with four
descriptors: the standard streams, and a pipe. The process id, and later the status as
:func:`os.waitpid` returns it, are written to the pipe, one line each.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import threading
import warnings
from contextlib import suppress

import stompkit._commands
import stompkit.conformance
import stompkit.testing.server.forkable
from tests.forking import Request

_STREAMS = 3
_REQUEST_BYTES = 1 << 20


def main(descriptor: int) -> None:
    """Fork until the socket is closed; then end as soon as no forked process is left."""
    for package in (stompkit._commands, stompkit.conformance):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                # Optional libraries may be missing.
                with suppress(ImportError):
                    importlib.import_module(module.name)
    if "twisted.internet.reactor" in sys.modules:
        raise RuntimeError("a module has installed a reactor, which commands would share")
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as channel:
        request = _serve(channel)
    if request is not None:
        _run(request)


def _serve(channel: socket.socket) -> Request | None:
    """Fork processes; return the request in each of them, and None at the end."""
    # Ctrl-C is for the tests, which end their processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wakeup, ended = socket.socketpair()
    for each in (wakeup, ended):
        each.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ended.fileno(), warn_on_full_buffer=False)
    pipes: dict[int, int] = {}
    is_open = True
    while is_open or pipes:
        waiting = [wakeup, channel] if is_open else [wakeup]
        readable, _, _ = select.select(waiting, [], [])
        if wakeup in readable:
            with suppress(BlockingIOError):
                wakeup.recv(4096)
            _report(pipes)
        if channel in readable:
            packet, descriptors, _, _ = socket.recv_fds(channel, _REQUEST_BYTES, _STREAMS + 1)
            if not packet:
                is_open = False
                continue
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                for each in (wakeup, ended, channel):
                    each.close()
                request: Request = json.loads(packet)
                _prepare(request, descriptors[:_STREAMS])
                return request
            for stream in descriptors[:_STREAMS]:
                os.close(stream)
            pipes[pid] = descriptors[-1]
            os.write(pipes[pid], b"%d\n" % pid)
    return None


def _report(pipes: dict[int, int]) -> None:
    """Write the status of each process that has ended to its pipe."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pipe = pipes.pop(ended[0])
            with suppress(BrokenPipeError):
                os.write(pipe, b"%d\n" % ended[1])
            os.close(pipe)


def _prepare(request: Request, streams: list[int]) -> None:
    """Give a forked process what a new one would have."""
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
    for each in map(int, os.listdir("/proc/self/fd")):
        if each >= _STREAMS:
            with suppress(OSError):
                os.close(each)
    if request["is_session"]:
        os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _run(request: Request) -> None:
    """Run a program as Python does."""
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["is_strict"]:
        sys.warnoptions.append("error")
        warnings.simplefilter("error")
    program = request["program"]
    is_script = os.path.isabs(program)
    sys.path[:] = [each for each in request["path"] if each not in sys.path] + sys.path[1:]
    if not sys.flags.safe_path:
        sys.path.insert(0, os.path.dirname(program) if is_script else os.getcwd())
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, closefd=False)
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = open(
            number,
            "w",
            buffering=1 if number == 2 or is_unbuffered or os.isatty(number) else -1,
            errors="backslashreplace" if number == 2 else None,
            closefd=False,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv[:] = [program, *request["arguments"]]
    status = 0
    try:
        if is_script:
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        if not isinstance(error.code, int | None):
            raise
        status = error.code or 0
    # As the interpreter ends, except for the destruction of all modules: that would copy all
    # memory that is shared with the parent.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for written in (sys.stdout, sys.stderr):
        with suppress(ValueError, OSError):
            written.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    main(int(sys.argv[1]))
