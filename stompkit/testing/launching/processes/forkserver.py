"""Fork brokers from a process that has imported their modules: imports take most of their start.

    python -m stompkit.testing.launching.processes.forkserver DESCRIPTOR PARENT MODULE

The program first imports the module, and with it all that brokers need. The descriptor is a socket
of type SOCK_SEQPACKET, whose other end belongs to the process PARENT, the parent of this program.
Each packet is a Request in JSON, with five descriptors. The guard reads its orders from the first
(see ``guard.py``), the broker writes its output to the second, and the guard writes its answers to
the third. The process id, and later the exit status (or minus the number of a signal), are written
to the fourth, one line each. The guard keeps the fifth open until it ends.

When the socket is closed, this program ends as soon as all guards have ended. When its parent
changes, it ends immediately, and the guards end with it. Linux only.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import Final

from stompkit._common.collector import without_collection
from stompkit.testing.launching.processes.forking import DIRECTORY, ROOM, Request
from stompkit.testing.launching.processes.guard import Guard, depend_on

__all__ = ["main"]

#: Interval in seconds between two checks of the parent process: a process that the parent forked
#: may keep the socket open.
_PARENT_CHECK_S: Final = 0.5
_REQUEST_BYTES: Final = 1 << 18
_DESCRIPTORS: Final = 5


def _serve(channel: socket.socket, parent: int) -> Request | None:
    """Fork guards; return the request in a broker's process, and None at the end."""
    # Not select: it refuses descriptors above 1,023, which a program with many files has.
    arrival = select.poll()
    arrival.register(channel, select.POLLIN)
    while os.getppid() == parent:
        _reap(os.WNOHANG)
        if not arrival.poll(_PARENT_CHECK_S * 1_000):
            continue
        packet, descriptors, _, _ = socket.recv_fds(channel, _REQUEST_BYTES, _DESCRIPTORS)
        if not packet:
            _reap(0)
            return None
        request: Request = json.loads(packet)
        ours = os.getpid()
        if os.fork() == 0:
            channel.close()
            return _guard(ours, request, *descriptors[:-1])
        for each in descriptors:
            os.close(each)
    return None


def _reap(options: int) -> None:
    """Collect guards that have ended; without options, wait for all of them."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, options)[0]:
            pass


class _IsBroker(BaseException):
    """Unwinds the stack of the guard in the broker's forked process."""


def _guard(
    parent: int, request: Request, orders: int, log: int, answers: int, status: int
) -> Request:
    """Run as the guard of a broker; return in the broker's own process."""
    os.write(status, b"%d\n" % os.getpid())
    os.setsid()
    for ours, standard in ((orders, 0), (log, 1), (log, 2)):
        os.dup2(ours, standard)
    os.close(orders)
    os.close(log)
    _show(request["directory"], "guard")
    try:
        code = Guard(_fork_broker, request["grace_s"], parent, answers).run()
    except _IsBroker:
        return request
    except BaseException:
        # To the broker's log.
        traceback.print_exc()
        code = 1
    os.write(status, b"%d\n" % code)
    os._exit(0)


def _fork_broker() -> int:
    """Return the process id of the broker; raise _IsBroker in the child."""
    guard = os.getpid()
    if pid := os.fork():
        return pid
    depend_on(guard)
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for each in map(int, os.listdir("/proc/self/fd")):
        # That of the folder itself is closed already.
        if each > 2:
            with suppress(OSError):
                os.close(each)
    raise _IsBroker


def _show(directory: str, name: str) -> None:
    """Set the name of this process, and the directory variable in its initial environment."""
    with suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write(name)
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    address = libc.getenv(DIRECTORY.encode())
    octets = os.fsencode(directory)
    if address and len(octets) < ROOM:
        ctypes.memset(address, 0, ROOM)
        ctypes.memmove(address, octets, len(octets))


def _run(request: Request) -> None:
    """Run ``twist`` as ``python -m twisted`` does."""
    _show(request["directory"], "twist")
    os.environ[DIRECTORY] = request["directory"]
    if request["test"] is not None:
        os.environ["PYTEST_CURRENT_TEST"] = request["test"]
    os.chdir(request["working_directory"])
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()
    sys.argv[1:] = request["arguments"]
    runpy.run_module("twisted", run_name="__main__", alter_sys=True)


def main(descriptor: int, parent: int, module: str) -> None:
    """Run the program."""
    with without_collection():
        importlib.import_module(module)
    # Exclude the current objects from garbage collection in forked processes.
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as channel:
        request = _serve(channel, parent)
    if request is None:
        # All guards have ended, and tests wait for this process: do not tear down all modules.
        os._exit(0)
    _run(request)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
