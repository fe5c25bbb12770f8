"""Turns of the reactor in which nobody takes all the time.

Twisted does in one turn all that epoll tells it of. Where ten thousand connections end at once, or
have sent something, that is a turn of half a second, and everybody else waits for its end. Here
strangers are in an epoll of their own, and so are the connections of each user who has many: epolls
that the reactor's tells of like of anything else. A turn has a few of each of them, and all of the
rest, so that who has few connections waits for a few of everybody else's.
"""

from __future__ import annotations

import select
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias, cast

__all__ = ["ANONYMOUS", "SharedPoll", "share_turns"]

#: What stands for the name of those who were let in without one: it is nobody's.
ANONYMOUS: Final = "\n"

#: A descriptor, and what can be done with it.
Event: TypeAlias = tuple[int, int]

_STRANGERS: Final = ""
#: Connections of a user that are among the rest; those that it has beyond them are by themselves.
_FEW: Final = 50
#: How many of those that are by themselves have their turn at a time.
_AT_A_TIME: Final = 16


class _Group:
    """The descriptors of a user that are by themselves, in an epoll within the reactor's."""

    def __init__(self, outer: Any) -> None:
        """Begin with none; ``outer`` is the reactor's epoll."""
        self.epoll = select.epoll()
        self.fd = self.epoll.fileno()
        self.count = 0
        outer.register(self.fd, select.EPOLLIN)


class _Place:
    """Where a descriptor is."""

    __slots__ = ("events", "group", "user")

    def __init__(self, group: _Group | None, user: str | None, events: int) -> None:
        self.group = group
        #: Whose it was when it came there, if anybody's.
        self.user = user
        self.events = events


class SharedPoll:
    """What an epoll object is to a reactor, but for how much of each user's it tells at a time."""

    def __init__(self, poller: Any, whose: Callable[[int], str | None]) -> None:
        """Stand for ``poller``, which may have descriptors already.

        ``whose`` gives the user of a descriptor: nothing for a stranger, ``None`` for one that is
        no client's.
        """
        self._poller = poller
        self._poll = poller.poll
        self._whose = whose
        self._places: dict[int, _Place] = {}
        #: By their users, and by their own descriptors.
        self._groups: dict[str, _Group] = {}
        self._by_fd: dict[int, _Group] = {}
        #: Descriptors that each user has.
        self._counts: Counter[str] = Counter()
        self.fileno = poller.fileno

    def poll(self, timeout: float = -1, maxevents: int = -1) -> list[Event]:
        """Wait for events; gives a few of each user's who has many."""
        by_fd = self._by_fd
        if maxevents >= 0:
            maxevents += len(by_fd)
        events: list[Event] = self._poll(timeout, maxevents)
        for index, event in enumerate(events):
            if event[0] in by_fd:
                return self._with_groups(events, index)
        return events

    def _with_groups(self, events: list[Event], first: int) -> list[Event]:
        """The events, with those of groups in place of the groups' own."""
        found = events[:first]
        for event in events[first:]:
            group = self._by_fd.get(event[0])
            if group is None:
                found.append(event)
                continue
            for each in group.epoll.poll(0, _AT_A_TIME):
                self._move(each[0])
                found.append(each)
        return found

    def _move(self, fd: int) -> None:
        """Have a descriptor be where it belongs, once it is known whose it is."""
        place, user = self._places.get(fd), self._whose(fd)
        if place is not None and place.user != user:
            self._leave(fd, place)
            self._enter(fd, user, place.events)

    def register(self, fd: int, events: int) -> None:
        """Begin to watch a descriptor: a stranger's, as long as nothing else is known."""
        place = self._places.get(fd)
        if place is not None:
            # It was closed without a word, and this is another one.
            with suppress(OSError):
                self._leave(fd, place)
        # The reactor has to learn first what it is.
        self._enter(fd, _STRANGERS, events)

    def modify(self, fd: int, events: int) -> None:
        """Watch a descriptor for something else."""
        place = self._places.get(fd)
        if place is None:
            # It was there before.
            self._poller.modify(fd, events)
            return
        (place.group.epoll if place.group else self._poller).modify(fd, events)
        place.events = events

    def unregister(self, fd: int) -> None:
        """Watch a descriptor no more."""
        place = self._places.get(fd)
        if place is None:
            self._poller.unregister(fd)
        else:
            self._leave(fd, place)

    def close(self) -> None:
        """Close it, and what is in it."""
        for group in self._groups.values():
            group.epoll.close()
        self._poller.close()

    def _enter(self, fd: int, user: str | None, events: int) -> None:
        group = None
        if user is not None and (user == _STRANGERS or self._counts[user] >= _FEW):
            group = self._groups.get(user)
            if group is None:
                group = self._groups[user] = _Group(self._poller)
                self._by_fd[group.fd] = group
        (group.epoll if group else self._poller).register(fd, events)
        self._places[fd] = _Place(group, user, events)
        if user is not None:
            self._counts[user] += 1
        if group is not None:
            group.count += 1

    def _leave(self, fd: int, place: _Place) -> None:
        group, user = place.group, place.user
        del self._places[fd]
        if user is not None:
            self._counts[user] -= 1
            if not self._counts[user]:
                del self._counts[user]
        if group is None:
            self._poller.unregister(fd)
            return
        try:
            group.epoll.unregister(fd)
        finally:
            group.count -= 1
            if not group.count and user:
                # That of strangers stays: it is never empty for long.
                del self._groups[user], self._by_fd[group.fd]
                group.epoll.close()


def share_turns(reactor: object) -> None:
    """Have a reactor share its turns; harmless the second time, and for others than epoll's.

    Whose a connection is says the attribute ``who`` of its protocol: a user's name, nothing for a
    stranger. What has none is never left to a later turn.
    """
    with suppress(ImportError):  # It is Linux's.
        from twisted.internet.epollreactor import EPollReactor

        if isinstance(reactor, EPollReactor):
            _share(cast("Any", reactor))


def _share(reactor: Any) -> None:
    # Twisted has no other way to it; without these it does as it always did.
    selectables: object = getattr(reactor, "_selectables", None)
    poller: object = getattr(reactor, "_poller", None)
    if isinstance(selectables, dict) and poller is not None and not isinstance(poller, SharedPoll):
        reactor._poller = SharedPoll(poller, lambda fd: _who(selectables.get(fd)))


def _who(selectable: object) -> str | None:
    protocol = getattr(selectable, "protocol", None)
    while protocol is not None:
        who: str | None = getattr(protocol, "who", None)
        if who is not None:
            return who
        # TLS is in between.
        protocol = getattr(protocol, "wrappedProtocol", None)
    return None
