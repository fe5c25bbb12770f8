"""Thousands of connections that mean a broker no good, in a process of their own.

``python -m benchmarks._crowd`` opens them, writes a line of JSON once they are open, goes on until
its standard input ends, and writes what it has done. ``benchmarks/hostile.py`` starts it.

Once most are open, nothing here is done faster than so many actions a second, of all connections
together: an action is a connection opened, or a piece of octets sent. What is due and cannot be
done waits its turn. The process gets the time that nobody else wants, so that it takes from the
broker what the kernel needs for its octets, but none of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import heapq
import itertools
import json
import os
import random
import resource
import select
import socket
import sys
import time
from collections import Counter
from typing import Final

__all__ = ["KINDS", "NEIGHBOUR", "Hostile", "main"]

#: The valid login of the neighbour who shares the broker.
NEIGHBOUR: Final = "neighbour:lives-next-door"
#: Number of source addresses, from 127.1.0.1 on.
_SOURCES: Final = 64
_TICK_S: Final = 0.002
_TOPIC: Final = "/topic/noise"
#: Headers of CONNECT before the login, below the limit of its size.
_LARGE_HEAD: Final = b"".join(b"x%02d:%s\n" % (n, b"y" * 600) for n in range(90))
_LOGIN_S: Final = 60.0
#: Connections opened per second until most are open.
_COMING_PER_S: Final = 2_000


class Hostile:
    """A slot among the connections, which is opened again after each close."""

    #: Seconds between two actions, and before it reconnects.
    every_s = 2.0
    again_s = 0.0
    reads = True

    def __init__(self, port: int, number: int) -> None:
        """Open nothing yet."""
        self.port = port
        self.number = number
        self.socket: socket.socket | None = None
        self.step = 0
        #: Number of the current connection; scheduled actions of earlier ones are skipped.
        self.life = 0

    def is_open(self) -> bool:
        """Return True if it has a connection."""
        return self.socket is not None

    def open(self) -> None:
        """Connect without waiting; raise OSError."""
        self.step = 0
        stream = socket.socket()
        stream.setblocking(False)
        if not self.reads:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        # Choose the port on connect: otherwise all slots of an address share one range of ports.
        stream.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1)
        stream.bind((f"127.1.0.{1 + self.number % _SOURCES}", 0))
        error = stream.connect_ex(("127.0.0.1", self.port))
        if error not in (0, errno.EINPROGRESS):
            stream.close()
            raise OSError(error, os.strerror(error))
        self.socket = stream

    def close(self) -> None:
        """Close the connection."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def send(self, data: bytes) -> None:
        """Send bytes, or as many as fit into the socket's buffer."""
        assert self.socket is not None  # it is called for open connections only
        with contextlib.suppress(BlockingIOError):
            self.socket.send(data)

    def act(self) -> float | None:
        """Run the next action; return the seconds until the next call, ``None`` for never."""
        return None


class Silent(Hostile):
    """Connects and never sends anything."""


class Dribble(Hostile):
    """Sends CONNECT byte by byte, and never completes it."""

    def act(self) -> float | None:
        """Send one byte."""
        head = b"CONNECT\naccept-version:1.2\nhost:x\nlogin:"
        self.send(head[self.step : self.step + 1] or b"a")
        self.step += 1
        return self.every_s


class Guess(Hostile):
    """Guesses passcodes."""

    def act(self) -> float | None:
        """Send a CONNECT with a wrong passcode."""
        self.send(_connect(f"user{self.number % 7}:{random.random()}"))
        return None


class Garbage(Hostile):
    """Sends bytes that are not STOMP."""

    again_s = 1.0

    def act(self) -> float | None:
        """Send some of them."""
        self.send(random.randbytes(1_024))
        return None


class Churn(Hostile):
    """Connects and closes."""

    every_s = again_s = 1.0

    def act(self) -> float | None:
        """Close, by a reset every other time."""
        if self.step:
            if self.number % 2 and self.socket is not None:
                linger = b"\1\0\0\0\0\0\0\0"
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close()
            return None
        self.step += 1
        return self.every_s


class Heads(Hostile):
    """Sends a CONNECT of the maximum size, with a wrong passcode at its end."""

    again_s = 1.0

    def act(self) -> float | None:
        """Send as much of it as fits into the socket's buffer."""
        wrong = f"login:user\npasscode:{random.random()}\n\n\0".encode()
        self.send(b"CONNECT\naccept-version:1.2\nhost:x\n" + _LARGE_HEAD + wrong)
        return None


class Neighbour(Hostile):
    """A client with a valid login."""

    def act(self) -> float | None:
        """Log in first."""
        self.step += 1
        if self.step == 1:
            self.send(_connect(NEIGHBOUR))
            return self.every_s
        return self.harass()

    def harass(self) -> float | None:
        """Run the hostile action; return the seconds until the next one."""
        raise NotImplementedError


class Beats(Neighbour):
    """Sends thousands of heart-beats."""

    every_s = 1.0

    def harass(self) -> float | None:
        """Send them."""
        self.send(b"\n" * 1_000)
        return self.every_s


class Bodies(Neighbour):
    """Sends a body byte by byte."""

    def harass(self) -> float | None:
        """Send a byte, after the head the first time."""
        head = b"SEND\ndestination:/queue/never\ncontent-length:1000000\n\n"
        self.send(head if self.step == 2 else b"x")
        return self.every_s


class Deaf(Neighbour):
    """Subscribes, and never reads; the first of them publishes the messages."""

    reads = False

    def harass(self) -> float | None:
        """Subscribe, or publish."""
        if self.number:
            self.send(b"SUBSCRIBE\nid:1\ndestination:%s\n\n\0" % _TOPIC.encode())
            return None
        self.send(b"SEND\ndestination:%s\n\n%s\0" % (_TOPIC.encode(), b"x" * 1_024))
        return 1.0


#: The kinds, and their number in a thousand.
KINDS: Final[dict[type[Hostile], int]] = {
    Silent: 200,
    Dribble: 200,
    Guess: 150,
    Beats: 100,
    Bodies: 100,
    Deaf: 100,
    Garbage: 50,
    Heads: 50,
    Churn: 50,
}


def _connect(login: str) -> bytes:
    user, _, passcode = login.partition(":")
    lines = f"accept-version:1.2\nhost:x\nlogin:{user}\npasscode:{passcode}\n"
    return f"CONNECT\n{lines}\n\0".encode()


class Crowd:
    """All connections, and counters of their actions."""

    def __init__(self, port: int, count: int, rate: int) -> None:
        """Open nothing yet; ``rate`` is the number of actions per second, and can change."""
        #: Actions per second.
        self.rate = rate
        self._poll = select.epoll()
        self._by_fd: dict[int, Hostile] = {}
        self._order = itertools.count()
        self._due: list[tuple[float, int, int, Hostile]] = []
        self.done: Counter[str] = Counter()
        places = [kind for kind, share in KINDS.items() for _ in range(count * share // 1_000)]
        numbers: Counter[type[Hostile]] = Counter()
        everybody = []
        for kind in places:
            everybody.append(kind(port, numbers[kind]))
            numbers[kind] += 1
        # Lasting connections come before the short ones.
        random.Random(0).shuffle(everybody)
        now = time.monotonic()
        for each in everybody:
            self._later(each, now)
        self.count = len(everybody)

    @property
    def open(self) -> int:
        """Number of open connections."""
        return len(self._by_fd)

    def close(self) -> None:
        """Close all open connections."""
        for hostile in self._by_fd.values():
            hostile.close()
        self._by_fd.clear()
        self._poll.close()

    def _later(self, hostile: Hostile, at: float) -> None:
        heapq.heappush(self._due, (at, next(self._order), hostile.life, hostile))

    def run(self, until: float) -> None:
        """Run until the given time."""
        while (now := time.monotonic()) < until:
            budget = max(1, int(self.rate * _TICK_S))
            while self._due and self._due[0][0] <= now and budget:
                _, _, life, hostile = heapq.heappop(self._due)
                if life == hostile.life:
                    self._act(hostile, now)
                    budget -= 1
            self._hear(min(until, now + _TICK_S))

    def _hear(self, until: float) -> None:
        """Read from the sockets until the end of the tick."""
        while True:
            for fd, _ in self._poll.poll(max(0.0, until - time.monotonic()), 256):
                self._read(self._by_fd[fd])
            if time.monotonic() >= until:
                return

    def _act(self, hostile: Hostile, now: float) -> None:
        try:
            if not hostile.is_open():
                hostile.open()
                assert hostile.socket is not None  # it has been opened
                fd = hostile.socket.fileno()
                self._by_fd[fd] = hostile
                self._poll.register(fd, select.EPOLLIN if hostile.reads else select.EPOLLRDHUP)
                self.done["opened"] += 1
                self._later(hostile, now + 0.1)
                return
            assert hostile.socket is not None  # it is open
            fd = hostile.socket.fileno()
            delay_s = hostile.act()
            self.done["acted"] += 1
            if not hostile.is_open():
                # Closing has removed it from the poll.
                del self._by_fd[fd]
                self._later(hostile, now + hostile.again_s)
            elif delay_s is not None:
                self._later(hostile, now + delay_s)
        except OSError:
            self._ended(hostile, now)

    def _read(self, hostile: Hostile) -> None:
        assert hostile.socket is not None  # it is in the poll
        try:
            data = hostile.socket.recv(65_536) if hostile.reads else b""
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.done["octets"] += len(data)
        if not data:
            self._ended(hostile, time.monotonic())

    def _ended(self, hostile: Hostile, now: float) -> None:
        """Schedule the reconnection of a closed slot."""
        if hostile.socket is not None:
            del self._by_fd[hostile.socket.fileno()]
            hostile.close()
            self.done["closed"] += 1
        hostile.life += 1
        self._later(hostile, now + max(hostile.again_s, 0.05))


def main() -> int:
    """Read the command line, and run until standard input ends; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--rate", type=int, required=True, help="actions in a second")
    given = parser.parse_args()
    # Run at idle priority: yield even the rest of a time slice.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    crowd = Crowd(given.port, given.connections, _COMING_PER_S)
    ends = time.monotonic() + _LOGIN_S
    while crowd.open < crowd.count * 0.95 and time.monotonic() < ends:
        crowd.run(time.monotonic() + 0.2)
    crowd.rate = given.rate
    print(json.dumps({"open": crowd.open}), flush=True)
    began, before, counts = time.monotonic(), _cpu_s(), []
    crowd.done.clear()
    while not select.select([sys.stdin], [], [], 0)[0]:
        crowd.run(time.monotonic() + 0.2)
        counts.append(crowd.open)
    took_s = time.monotonic() - began
    report = {name: count / took_s for name, count in crowd.done.items()}
    report["open"] = sum(counts) / max(1, len(counts))
    report["cores"] = (_cpu_s() - before) / took_s
    print(json.dumps(report), flush=True)
    return 0


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
