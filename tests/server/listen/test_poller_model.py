"""Scheduling of output: random sequences of calls, compared with what the sockets can do."""

from __future__ import annotations

import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Event
from typing import Any, ClassVar, Final, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from twisted.internet.protocol import Factory, Protocol

from stompkit.server.listen.fair_poller import SharedPoll, schedule_fairly
from tests.effort import drawn

if sys.platform != "linux":
    pytest.skip("epoll is Linux's", allow_module_level=True)

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
USER: Final = "shop"
#: Requests for a long answer and for the end, the end of a long answer, and its size without it.
LONG, END, LAST, SIZE = b"l", b"e", b"z", 8 << 20
_MANY: Final = 4
_WAIT_S: Final = 30.0


class CountingEpoll:
    """An epoll that counts its system calls."""

    def __init__(self, epoll: Any) -> None:
        """Count from zero."""
        self._epoll = epoll
        self.waits = self.changes = 0
        self.fileno = epoll.fileno
        self.close = epoll.close

    def poll(self, timeout: float = -1, maxevents: int = -1) -> list[tuple[int, int]]:
        """Count a wait."""
        self.waits += 1
        events: list[tuple[int, int]] = self._epoll.poll(timeout, maxevents)
        return events

    def register(self, fd: int, events: int) -> None:
        """Count a new descriptor."""
        self.changes += 1
        self._epoll.register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        """Count a change of a descriptor."""
        self.changes += 1
        self._epoll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        """Count the end of a descriptor."""
        self.changes += 1
        self._epoll.unregister(fd)


class Watched:
    """A watched socket, its other end, and what the reactor wants of it."""

    def __init__(self, poll: SharedPoll) -> None:
        """Open a connection with small buffers, and log in."""
        self.ours, self.theirs = socket.socketpair()
        for end in (self.ours, self.theirs):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        self.fd = self.ours.fileno()
        self._poll = poll
        self.wanted = READ
        poll.register(self.fd, READ)
        self.login()
        #: Number of calls of poll since a wanted event became possible without being reported.
        self.missed = {READ: 0, WRITE: 0}
        #: True if WRITE was reported, or never wanted, since the socket was full.
        self.has_tried = False

    def login(self) -> None:
        """Cause an event, upon which the user becomes known."""
        self.theirs.send(b"x")
        assert self._poll.poll(0, 9) == [(self.fd, READ)]
        self.ours.recv(9)

    def want(self, events: int) -> None:
        """Want these events and no others."""
        if events & WRITE and not self.wanted & WRITE:
            self.has_tried = False
        if events != self.wanted:
            self._poll.modify(self.fd, events)
            self.wanted = events
        for each, count in self.missed.items():
            self.missed[each] = count if events & each else 0

    def possible(self) -> int:
        """Return the events that the socket is ready for, by a poll of the socket alone."""
        alone = select.poll()
        alone.register(self.ours, select.POLLIN | select.POLLOUT)
        found = dict(alone.poll(0)).get(self.fd, 0)
        return (READ if found & select.POLLIN else 0) | (WRITE if found & select.POLLOUT else 0)

    def fill(self) -> None:
        """Send until there is no room."""
        try:
            while True:
                self.ours.send(b"x" * 4096)
        except BlockingIOError:
            pass

    def drain(self) -> None:
        """Read all at both ends."""
        for end in (self.ours, self.theirs):
            try:
                while end.recv(1 << 16):
                    pass
            except BlockingIOError:
                pass

    def close(self) -> None:
        """Close both ends."""
        self.ours.close()
        self.theirs.close()


class PollerModel(RuleBasedStateMachine):
    """Descriptors of one user, which the reactor may want to read, to write, both or neither."""

    def __init__(self) -> None:
        """Start with some connections, of which the reactor wants to read."""
        super().__init__()
        self.stack = ExitStack()
        epoll = self.stack.enter_context(select.epoll())
        self.shared = SharedPoll(epoll, lambda _: USER)
        self.watched: list[Watched] = []
        for _ in range(_MANY):
            self._add()

    def _add(self) -> None:
        for each in self.watched:
            each.want(0)
            each.drain()
        self.shared.poll(0, _MANY)
        self.watched.append(Watched(self.shared))
        for each in self.watched[:-1]:
            each.want(READ)

    @rule(index=st.integers(0, _MANY - 1), events=st.sampled_from([0, READ, WRITE, READ | WRITE]))
    def want(self, index: int, events: int) -> None:
        """Change what the reactor wants of a descriptor, as pauses and output do."""
        self.watched[index].want(events)

    @rule(index=st.integers(0, _MANY - 1))
    def receive(self, index: int) -> None:
        """Let a client send a byte."""
        try:
            self.watched[index].theirs.send(b"x")
        except BlockingIOError:
            pass

    @rule(index=st.integers(0, _MANY - 1))
    def fill(self, index: int) -> None:
        """Send until the client, which does not read, has no room."""
        self.watched[index].fill()

    @rule(index=st.integers(0, _MANY - 1))
    def drain(self, index: int) -> None:
        """Let both ends read all."""
        self.watched[index].drain()

    @rule(index=st.integers(0, _MANY - 1))
    def replace(self, index: int) -> None:
        """Close a connection, and accept another one, which may get the same number."""
        old = self.watched.pop(index)
        self.shared.unregister(old.fd)
        old.close()
        self._add()

    @rule()
    def poll(self) -> None:
        """Ask for events: only wanted ones come, and none that is possible is left for long."""
        events = self.shared.poll(0, _MANY)
        found = dict(events)
        assert len(found) == len(events)
        assert set(found) <= {each.fd for each in self.watched}
        for each in self.watched:
            reported = found.get(each.fd, 0) & (READ | WRITE)
            possible = each.possible()
            assert not reported & ~each.wanted
            assert not reported & READ & ~possible
            if reported & WRITE & ~possible:
                assert not each.has_tried, "reported again, although the client has no room"
            if reported & WRITE or not each.wanted & WRITE:
                each.has_tried = True
            for kind in (READ, WRITE):
                is_missed = each.wanted & possible & kind and not reported & kind
                each.missed[kind] = each.missed[kind] + 1 if is_missed else 0
                assert each.missed[kind] < 2, "left out twice"

    def teardown(self) -> None:
        """Close all sockets."""
        for each in self.watched:
            each.close()
        self.stack.close()


TestPoller = PollerModel.TestCase
TestPoller.settings = settings(max_examples=drawn(100))


def watch_one(poller: Any, user: str = USER) -> tuple[SharedPoll, Watched]:
    """Return a poll with a client that has logged in."""
    shared = SharedPoll(poller, lambda _: user)
    return shared, Watched(shared)


def test_new_output_is_reported_without_a_system_call() -> None:
    with select.epoll() as epoll:
        counting = CountingEpoll(epoll)
        shared, client = watch_one(counting)
        before = counting.waits, counting.changes
        client.want(READ | WRITE)
        assert shared.poll(0, 9) == [(client.fd, WRITE)]
        client.want(READ)
        assert (counting.waits, counting.changes) == before
        client.close()


def test_output_that_never_ends_does_not_delay_input_of_others() -> None:
    with select.epoll() as epoll:
        shared, busy = watch_one(epoll)
        other = Watched(shared)
        busy.want(READ | WRITE)
        assert shared.poll(0, 9) == [(busy.fd, WRITE)]
        other.theirs.send(b"x")
        for _ in range(5):
            # All is written, and there is more.
            busy.want(READ)
            busy.want(READ | WRITE)
            assert set(shared.poll(0, 9)) == {(busy.fd, WRITE), (other.fd, READ)}
        busy.close()
        other.close()


class Answering(Protocol):
    """Answers each chunk of a client that has logged in; ends at once if asked to."""

    who = USER
    ended: ClassVar[Event] = Event()

    def connectionMade(self) -> None:
        """Produce as the broker does: some output, and the rest when that is written."""
        cast("Any", self.transport).registerProducer(self, True)

    def pauseProducing(self) -> None:
        """Do nothing."""

    def stopProducing(self) -> None:
        """Do nothing."""

    def resumeProducing(self) -> None:
        """Send the end of a long answer, by a timer that must not wait for other events."""
        transport = cast("Any", self.transport)
        transport.reactor.callLater(0, transport.write, LAST)

    def dataReceived(self, data: bytes) -> None:
        """Answer with the same bytes, or with a long answer."""
        assert self.transport is not None
        if data == LONG:
            self.transport.write(LONG * SIZE)
        elif data == END:
            self.transport.write(END)
            self.transport.loseConnection()
        else:
            self.transport.write(data)

    def connectionLost(self, reason: object = None) -> None:
        """Record the end."""
        self.ended.set()


class Answers:
    """A real reactor, whose system calls are counted, and a client of its."""

    def __init__(self, reactor: Any, client: socket.socket, counting: CountingEpoll) -> None:
        """Wait for requests of the client."""
        self.reactor = reactor
        self._client = client
        self.counting = counting

    def ask(self, request: bytes, is_whole: Callable[[bytes], bool]) -> bytes:
        """Return the answer to a request; the reactor waits for events without a time limit."""
        self._client.sendall(request)
        answer = b""
        deadline = time.monotonic() + _WAIT_S
        while not is_whole(answer) and time.monotonic() < deadline:
            self.reactor.iterate(0.1)
            try:
                data = self._client.recv(1 << 16)
            except BlockingIOError:
                continue
            answer += data
            if not data:
                break
        return answer


@pytest.fixture
def answers() -> Iterator[Answers]:
    """A real reactor that schedules fairly, with a client that has logged in."""
    from twisted.internet.epollreactor import EPollReactor

    Answering.ended.clear()
    reactor: Any = EPollReactor()  # type: ignore[no-untyped-call]  # Twisted's
    reactor._poller = counting = CountingEpoll(reactor._poller)
    schedule_fairly(reactor)
    port = reactor.listenTCP(0, Factory.forProtocol(Answering), interface="127.0.0.1")
    with socket.create_connection(("127.0.0.1", port.getHost().port)) as client:
        client.setblocking(False)
        answers = Answers(reactor, client, counting)
        # The user becomes known with the first event.
        for _ in range(2):
            assert answers.ask(b"x", bool) == b"x"
        yield answers
    closed: list[object] = []
    port.stopListening().addCallback(closed.append)
    deadline = time.monotonic() + _WAIT_S
    while not (closed and Answering.ended.is_set()) and time.monotonic() < deadline:
        reactor.iterate(0.1)
    reactor.removeAll()
    reactor._poller.close()


def test_an_answer_of_a_real_reactor_takes_one_wait(answers: Answers) -> None:
    counting = answers.counting
    before = counting.changes
    for number in range(10):
        waits = counting.waits
        request = b"%d" % number
        assert answers.ask(request, bool) == request
        # A client that has not been scheduled yet may cause a wait without an event.
        assert counting.changes == before
        assert counting.waits > waits


def test_a_long_answer_comes_whole_with_what_follows_from_it(answers: Answers) -> None:
    whole = LONG * SIZE + LAST
    assert answers.ask(LONG, lambda answer: len(answer) >= len(whole)) == whole
    assert answers.ask(b"x", bool) == b"x"


def test_the_last_answer_comes_before_the_end(answers: Answers) -> None:
    assert answers.ask(END, lambda _: False) == END
    assert Answering.ended.wait(0)
