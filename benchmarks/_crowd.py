"""Thousands of connections that mean a broker no good, in a process of their own.

``python -m benchmarks._crowd`` opens them, writes a line of JSON once they are open, goes on until
its standard input ends, and writes what it has done. ``benchmarks/hostile.py`` starts it.

Once most are open, nothing here is done faster than so many actions a second, of all connections
together: an action is a connection opened, or a piece of octets sent. What is due and can't be done
waits its turn. The process gets the time that nobody else wants, so that it takes from the broker
what the kernel needs for its octets, but none of its own.
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

#: Who has a login that is right: the neighbour who shares the broker.
NEIGHBOUR: Final = "neighbour:lives-next-door"
#: Addresses to come from: 127.1.0.1 and so on.
_SOURCES: Final = 64
_TICK_S: Final = 0.002
_TOPIC: Final = "/topic/noise"
#: Octets that the head of CONNECT may have before the login, and what is below that.
_LARGE_HEAD: Final = b"".join(b"x%02d:%s\n" % (n, b"y" * 600) for n in range(90))
_LOGIN_S: Final = 60.0
#: Connections that are opened in a second until most are there.
_COMING_PER_S: Final = 2_000


class Hostile:
    """One place among the connections: what is opened there, again and again."""

    #: Seconds between two actions, and before it connects again.
    every_s = 2.0
    again_s = 0.0
    reads = True

    def __init__(self, port: int, number: int) -> None:
        """Open nothing yet."""
        self.port = port
        self.number = number
        self.socket: socket.socket | None = None
        self.step = 0
        #: Which of those that were opened this is: what was to be done with others is not any more.
        self.life = 0

    def is_open(self) -> bool:
        """Whether it has a connection."""
        return self.socket is not None

    def open(self) -> None:
        """Connect, without waiting for it; raises OSError."""
        self.step = 0
        stream = socket.socket()
        stream.setblocking(False)
        if not self.reads:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        # Not before it connects: or each address would have only so many ports for all.
        stream.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1)
        stream.bind((f"127.1.0.{1 + self.number % _SOURCES}", 0))
        error = stream.connect_ex(("127.0.0.1", self.port))
        if error not in (0, errno.EINPROGRESS):
            stream.close()
            raise OSError(error, os.strerror(error))
        self.socket = stream

    def close(self) -> None:
        """End what is open."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def send(self, data: bytes) -> None:
        """Send octets, or as many as there is room for."""
        assert self.socket is not None  # it is called for what is open
        with contextlib.suppress(BlockingIOError):
            self.socket.send(data)

    def act(self) -> float | None:
        """Do what is next; gives the seconds until it is called again, ``None`` for never."""
        return None


class Silent(Hostile):
    """Connects and never says a word."""


class Dribble(Hostile):
    """Sends CONNECT an octet at a time, and never comes to its end."""

    def act(self) -> float | None:
        """Send one octet."""
        head = b"CONNECT\naccept-version:1.2\nhost:x\nlogin:"
        self.send(head[self.step : self.step + 1] or b"a")
        self.step += 1
        return self.every_s


class Guess(Hostile):
    """Guesses passcodes."""

    def act(self) -> float | None:
        """Send a CONNECT with a passcode that is wrong."""
        self.send(_connect(f"user{self.number % 7}:{random.random()}"))
        return None


class Garbage(Hostile):
    """Sends octets that are nothing."""

    again_s = 1.0

    def act(self) -> float | None:
        """Send some."""
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
    """Sends a CONNECT as large as it may be, with a wrong passcode at its end."""

    again_s = 1.0

    def act(self) -> float | None:
        """Send it, as far as there is room."""
        wrong = f"login:user\npasscode:{random.random()}\n\n\0".encode()
        self.send(b"CONNECT\naccept-version:1.2\nhost:x\n" + _LARGE_HEAD + wrong)
        return None


class Neighbour(Hostile):
    """One that is let in."""

    def act(self) -> float | None:
        """Log in first."""
        self.step += 1
        if self.step == 1:
            self.send(_connect(NEIGHBOUR))
            return self.every_s
        return self.harass()

    def harass(self) -> float | None:
        """Do what it has come for; gives the seconds until the next time."""
        raise NotImplementedError


class Beats(Neighbour):
    """Sends heart-beats by the thousand."""

    every_s = 1.0

    def harass(self) -> float | None:
        """Send them."""
        self.send(b"\n" * 1_000)
        return self.every_s


class Bodies(Neighbour):
    """Sends a body an octet at a time."""

    def harass(self) -> float | None:
        """Send an octet, behind the head the first time."""
        head = b"SEND\ndestination:/queue/never\ncontent-length:1000000\n\n"
        self.send(head if self.step == 2 else b"x")
        return self.every_s


class Deaf(Neighbour):
    """Subscribes, and never reads what comes; the first of them is who makes the noise."""

    reads = False

    def harass(self) -> float | None:
        """Subscribe, or make noise."""
        if self.number:
            self.send(b"SUBSCRIBE\nid:1\ndestination:%s\n\n\0" % _TOPIC.encode())
            return None
        self.send(b"SEND\ndestination:%s\n\n%s\0" % (_TOPIC.encode(), b"x" * 1_024))
        return 1.0


#: What there is, and how many of a thousand.
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
    """All of them, and what they have done."""

    def __init__(self, port: int, count: int, rate: int) -> None:
        """Open nothing yet; ``rate`` is that of actions in a second, and can change."""
        #: Actions in a second.
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
        # Those that stay come before those that come and go.
        random.Random(0).shuffle(everybody)
        now = time.monotonic()
        for each in everybody:
            self._later(each, now)
        self.count = len(everybody)

    @property
    def open(self) -> int:
        """How many are open."""
        return len(self._by_fd)

    def close(self) -> None:
        """Close all that are open."""
        for hostile in self._by_fd.values():
            hostile.close()
        self._by_fd.clear()
        self._poll.close()

    def _later(self, hostile: Hostile, at: float) -> None:
        heapq.heappush(self._due, (at, next(self._order), hostile.life, hostile))

    def run(self, until: float) -> None:
        """Go on until a time."""
        while (now := time.monotonic()) < until:
            budget = max(1, int(self.rate * _TICK_S))
            while self._due and self._due[0][0] <= now and budget:
                _, _, life, hostile = heapq.heappop(self._due)
                if life == hostile.life:
                    self._act(hostile, now)
                    budget -= 1
            self._hear(min(until, now + _TICK_S))

    def _hear(self, until: float) -> None:
        """Read what has come, and wait for the rest of the tick."""
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
                # Closing it has taken it out of the poll.
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
        """Have one that was closed come again."""
        if hostile.socket is not None:
            del self._by_fd[hostile.socket.fileno()]
            hostile.close()
            self.done["closed"] += 1
        hostile.life += 1
        self._later(hostile, now + max(hostile.again_s, 0.05))


def main() -> int:
    """Read the command line, and run until standard input ends; gives the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--rate", type=int, required=True, help="actions in a second")
    given = parser.parse_args()
    # It has no processor of its own: not even the rest of a slice that it has begun.
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
