"""Fairness in the reactor: a user with many connections is served some of them at a time."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from stompkit.server.domain.session.base import sessions_of
from stompkit.server.interfaces import Credentials, User
from stompkit.server.listen.fair_poller import ANONYMOUS, SharedPoll, schedule_fairly
from stompkit.server.listen.protocol import BrokerProtocol
from stompkit.testing.memory import MemoryBroker
from tests.server.processes import (
    DEADLINE_S,
    LOOPBACK,
    TWIST,
    Client,
    announced,
    processes,
    tcp,
)

if sys.platform != "linux":
    pytest.skip("epoll is Linux's", allow_module_level=True)

#: Connections served in one iteration: of clients before login, and of each user with many; and the
#: most connections that do not count as many.
AT_A_TIME, FEW = 16, 50
READ, WRITE = select.EPOLLIN, select.EPOLLOUT


class Descriptors:
    """Watched sockets, each of which belongs to a user."""

    def __init__(self, stack: ExitStack) -> None:
        """Start without sockets."""
        self._stack = stack
        self.users: dict[int, str | None] = {}
        self._ends: dict[int, tuple[socket.socket, socket.socket]] = {}
        self.epoll = stack.enter_context(select.epoll())
        self.poll = SharedPoll(self.epoll, self.users.get)

    def add(self, user: str | None = "", *, events: int = READ) -> int:
        """Watch another socket; return its descriptor."""
        ours, theirs = socket.socketpair()
        self._stack.enter_context(ours)
        self._stack.enter_context(theirs)
        fd = ours.fileno()
        self._ends[fd] = ours, theirs
        self.users[fd] = user
        self.poll.register(fd, events)
        return fd

    def say(self, *fds: int) -> None:
        """Send a byte to each socket."""
        for fd in fds:
            self._ends[fd][1].send(b"x")

    def hear(self, *fds: int) -> None:
        """Read the pending bytes of each socket."""
        for fd in fds:
            self._ends[fd][0].recv(9)

    def turn(self) -> set[int]:
        """Return the descriptors served in one iteration."""
        events = self.poll.poll(0, len(self._ends))
        fds = [fd for fd, _ in events]
        assert len(set(fds)) == len(fds)
        assert set(fds) <= set(self._ends)
        return set(fds)

    def settle(self, *fds: int) -> None:
        """Send to each socket and read from it, until the reactor knows its user."""
        self.say(*fds)
        left = set(fds)
        while left:
            heard = self.turn()
            self.hear(*heard)
            left -= heard


@pytest.fixture
def watched() -> Iterator[Descriptors]:
    """A set of watched sockets, empty at first."""
    with ExitStack() as stack:
        yield Descriptors(stack)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_who_has_few_connections_waits_for_some_strangers_only(watched: Descriptors) -> None:
    shop = watched.add("shop")
    watched.settle(shop)
    strangers = {watched.add() for _ in range(100)}
    watched.say(*strangers, shop)
    left = set(strangers)
    while left:
        heard = watched.turn()
        assert shop in heard
        assert len(heard) <= AT_A_TIME + 1
        watched.hear(*heard - {shop})
        left -= heard
    watched.hear(shop)
    assert not watched.turn()


def test_strangers_have_their_turns_one_after_the_other(watched: Descriptors) -> None:
    strangers = {watched.add() for _ in range(100)}
    watched.say(*strangers)
    heard: set[int] = set()
    for _ in range(len(strangers) // AT_A_TIME + 1):
        # No data is read: each socket is reported again, but not before the others.
        heard |= watched.turn()
    assert heard == strangers


def test_each_user_who_has_many_has_some_at_a_time(watched: Descriptors) -> None:
    many = {user: [watched.add(user) for _ in range(FEW + 30)] for user in ("ada", "bob")}
    few = [watched.add(f"user {number}") for number in range(20)]
    everybody = [*many["ada"], *many["bob"], *few]
    watched.settle(*everybody)
    watched.say(*everybody)
    heard = watched.turn()
    assert heard >= set(few)
    for fds in many.values():
        assert len(heard & set(fds)) == FEW + AT_A_TIME


def test_what_is_no_clients_never_waits(watched: Descriptors) -> None:
    ports = [watched.add(None) for _ in range(100)]
    watched.settle(*ports)
    watched.say(*ports)
    assert watched.turn() == set(ports)


def test_what_it_is_watched_for_can_change_before_and_after_a_login(watched: Descriptors) -> None:
    fd = watched.add()
    assert not watched.turn()
    watched.poll.modify(fd, READ | WRITE)
    assert watched.poll.poll(0, 1) == [(fd, WRITE)]
    watched.users[fd] = "shop"
    assert watched.poll.poll(0, 1) == [(fd, WRITE)]
    assert watched.poll.poll(0, 1) == [(fd, WRITE)]
    watched.poll.modify(fd, READ)
    assert not watched.turn()
    watched.say(fd)
    assert watched.poll.poll(0, 1) == [(fd, READ)]
    watched.poll.unregister(fd)
    assert not watched.turn()
    with pytest.raises(OSError, match="No such file"):
        watched.poll.unregister(fd)


def test_what_was_there_before_stays_as_it_was(watched: Descriptors) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        fd = ours.fileno()
        watched.epoll.register(fd, READ)
        theirs.send(b"x")
        assert watched.poll.poll(0, 1) == [(fd, READ)]
        watched.poll.modify(fd, WRITE)
        assert watched.poll.poll(0, 1) == [(fd, WRITE)]
        watched.poll.unregister(fd)
        assert not watched.poll.poll(0, 1)


def test_those_who_are_gone_leave_nothing(watched: Descriptors) -> None:
    stranger = watched.add()
    before = open_files()
    fds = [watched.add("ada") for _ in range(FEW + 30)]
    watched.settle(*fds)
    for fd in fds:
        watched.poll.unregister(fd)
        for end in watched._ends[fd]:
            end.close()
    assert open_files() == before
    watched.say(stranger)
    assert watched.turn() == {stranger}


def test_a_descriptor_that_was_closed_without_a_word_is_another_ones(watched: Descriptors) -> None:
    fd = watched.add()
    for end in watched._ends.pop(fd):
        end.close()
    others = {watched.add() for _ in range(2)}
    assert fd in others
    watched.say(*others)
    assert watched.turn() == others


def test_a_reactor_shares_its_turns_once() -> None:
    from twisted.internet.epollreactor import EPollReactor

    reactor: Any = EPollReactor()  # type: ignore[no-untyped-call]  # Twisted's
    schedule_fairly(reactor)
    first = reactor._poller
    assert isinstance(first, SharedPoll)
    schedule_fairly(reactor)
    assert reactor._poller is first
    schedule_fairly(object())
    reactor.removeAll()
    first.close()


class Letting:
    """An authenticator that accepts every login."""

    def authenticate(self, credentials: Credentials, answer: Callable[[User | None], None]) -> None:
        """Use the login as the name."""
        answer(User(credentials.login or ""))


def test_a_client_is_a_stranger_until_it_has_logged_in() -> None:
    memory = MemoryBroker(authenticator=Letting())
    client = memory.connect()
    [connection] = sessions_of(memory.broker)
    protocol = cast("BrokerProtocol", connection.outlet)
    assert protocol.who == ""
    client.send("CONNECT", {"accept-version": "1.2", "host": "x", "login": "ada"})
    assert protocol.who == "ada"
    nobody = MemoryBroker()
    nobody.client()
    [connection] = sessions_of(nobody.broker)
    assert cast("BrokerProtocol", connection.outlet).who == ANONYMOUS


def test_a_real_reactor_knows_whose_its_connections_are(tmp_path: Path) -> None:
    users = tmp_path / "users.ini"
    users.write_text("[auth]\nada = lovelace\n", encoding="utf-8")
    announce = tmp_path / "announce"
    options = ("--endpoint", LOOPBACK, "--announce", str(announce), "--auth", f"ini:{users}")
    with processes(tmp_path) as start, ExitStack() as stack:
        [endpoint] = announced(start(TWIST, *options), announce)
        # More than the limit, and all continue to work after they have moved.
        friends = [stack.enter_context(Client(endpoint, "ada:lovelace")) for _ in range(FEW + 30)]
        strangers = [stack.enter_context(tcp(endpoint)) for _ in range(200)]
        for stranger in strangers:
            stranger.sendall(b"NONSENSE\n\n\0")
        for friend in friends:
            assert friend.send("/topic/any").startswith(b"RECEIPT\n")
        for stranger in strangers:
            # The broker may have stopped waiting for its end, and sending would fail.
            stranger.settimeout(DEADLINE_S)
            assert stranger.recv(65_536).startswith(b"ERROR\n")
        for friend in friends:
            assert friend.send("/topic/any").startswith(b"RECEIPT\n")
