"""Fair scheduling of connections within one reactor iteration.

Twisted processes all events that epoll reports in one iteration. If ten thousand connections end at
once, or have sent data, that iteration takes half a second, and all others wait for its end. This
module puts unauthenticated connections into a separate epoll, and also the connections of each user
who has many. The reactor's epoll contains these epolls like other descriptors. Each iteration
processes a few events of each of them, and all other events. Users with few connections therefore
wait only for a few events of each other user.

Twisted registers a connection with output for writing, waits until epoll reports it, writes, and
unregisters it. The socket of a client that reads its answers is nearly always writable. This module
therefore writes new output before it waits for events, or reports the connection at once if more
follows than a write. Only if the output does not fit is the connection registered.
"""

from __future__ import annotations

import select
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias, cast

from twisted.internet.tcp import Server

__all__ = ["ANONYMOUS", "SharedPoll", "schedule_fairly"]

#: User name of connections that logged in without a name; no user can have it.
ANONYMOUS: Final = "\n"

#: A descriptor with its ready events.
Event: TypeAlias = tuple[int, int]

_NOT_LOGGED_IN: Final = ""
#: Number of connections of a user in the reactor's epoll; further ones are in the user's own epoll.
_FEW: Final = 50
#: Maximum number of events taken from a user's own epoll at a time.
_AT_A_TIME: Final = 16


class _Group:
    """The separate descriptors of a user, in an epoll nested in the reactor's."""

    def __init__(self, outer: Any) -> None:
        """Start empty; ``outer`` is the reactor's epoll."""
        self.epoll = select.epoll()
        self.fd = self.epoll.fileno()
        self.count = 0
        outer.register(self.fd, select.EPOLLIN)


class _Place:
    """Location of a descriptor."""

    __slots__ = ("events", "group", "user", "wanted")

    def __init__(self, group: _Group | None, user: str | None, events: int) -> None:
        self.group = group
        #: The user at the time of registration, if any.
        self.user = user
        #: The events registered in the kernel, and those that the reactor wants.
        self.events = events
        self.wanted = events


class SharedPoll:
    """A drop-in replacement for a reactor's epoll that limits the events of each user."""

    def __init__(
        self,
        poller: Any,
        whose: Callable[[int], str | None],
        write: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """Wrap ``poller``, which may already have descriptors.

        ``whose`` returns the user of a descriptor: empty if unauthenticated, ``None`` if it is not
        a client's. ``write`` writes the output of a descriptor, and returns True, if nothing else
        follows from that; otherwise it returns False, and the reactor has to write.
        """
        self._poller = poller
        self._poll = poller.poll
        self._whose = whose
        self._write = write
        self._places: dict[int, _Place] = {}
        #: Groups by user, and by their own descriptors.
        self._groups: dict[str, _Group] = {}
        self._by_fd: dict[int, _Group] = {}
        #: Number of descriptors by user.
        self._counts: Counter[str] = Counter()
        #: Descriptors with new output, to be reported as writable without asking the kernel; and
        #: those that the last call of :meth:`poll` has reported so.
        self._writers: dict[int, _Place] = {}
        self._reported: dict[int, _Place] = {}
        #: True if the next call has to ask the kernel, too: the last one did not, or has reported
        #: one of the writers already.
        self._must_wait = False
        self.fileno = poller.fileno

    def poll(self, timeout: float = -1, maxevents: int = -1) -> list[Event]:
        """Wait for events; return a limited number for each user with many connections."""
        if self._reported:
            self._register_blocked()
        must_wait, self._must_wait = self._must_wait, False
        if not self._writers:
            return self._wait(timeout, maxevents)
        writers = self._unwritten()
        if not writers:
            return self._wait(timeout, maxevents)
        self._reported = writers
        if not must_wait:
            self._must_wait = True
            return [(fd, select.EPOLLOUT) for fd in writers]
        # Connections that always have output must not delay the input of others.
        found = dict(self._wait(0, maxevents))
        for fd in writers:
            found[fd] = found.get(fd, 0) | select.EPOLLOUT
        return list(found.items())

    def _unwritten(self) -> dict[int, _Place]:
        """Write new output, and return the descriptors that the reactor has to write to."""
        writers, self._writers = self._writers, {}
        unwritten = {}
        for fd, place in writers.items():
            if not self._write(fd):
                unwritten[fd] = place
            elif place.wanted != place.events:
                self._register_writer(fd, place)
        return unwritten

    def _register_blocked(self) -> None:
        """Register the writers reported by the last call whose output did not fit."""
        reported, self._reported = self._reported, {}
        for fd, place in reported.items():
            if place.wanted != place.events:
                self._register_writer(fd, place)

    def _register_writer(self, fd: int, place: _Place) -> None:
        self._poller.modify(fd, place.wanted)
        place.events = place.wanted

    def _wait(self, timeout: float, maxevents: int) -> list[Event]:
        """Return the events that the kernel reports."""
        by_fd = self._by_fd
        if maxevents >= 0:
            maxevents += len(by_fd)
        events: list[Event] = self._poll(timeout, maxevents)
        for index, event in enumerate(events):
            if event[0] in by_fd:
                return self._with_groups(events, index)
        return events

    def _with_groups(self, events: list[Event], first: int) -> list[Event]:
        """Return the events, replacing those of groups by the events within them."""
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
        """Move a descriptor to the group of its user, once the user is known."""
        place, user = self._places.get(fd), self._whose(fd)
        if place is not None and place.user != user:
            self._leave(fd, place)
            self._enter(fd, user, place.events)

    def register(self, fd: int, events: int) -> None:
        """Watch a descriptor, as unauthenticated until more is known."""
        place = self._places.get(fd)
        if place is not None:
            # It was closed without being unregistered, and its number has been reused.
            with suppress(OSError):
                self._leave(fd, place)
        # The reactor must first register it.
        self._enter(fd, _NOT_LOGGED_IN, events)

    def modify(self, fd: int, events: int) -> None:
        """Change the watched events of a descriptor."""
        place = self._places.get(fd)
        if place is None:
            # It existed before this wrapper.
            self._poller.modify(fd, events)
            return
        place.wanted = events
        if events == place.events:
            self._writers.pop(fd, None)
        elif events == place.events | select.EPOLLOUT and place.user and place.group is None:
            self._writers[fd] = place
            if self._reported.pop(fd, None) is not None:
                self._must_wait = True
        else:
            self._writers.pop(fd, None)
            (place.group.epoll if place.group else self._poller).modify(fd, events)
            place.events = events

    def unregister(self, fd: int) -> None:
        """Stop watching a descriptor."""
        place = self._places.get(fd)
        if place is None:
            self._poller.unregister(fd)
        else:
            self._leave(fd, place)

    def close(self) -> None:
        """Close the epoll and its groups."""
        for group in self._groups.values():
            group.epoll.close()
        self._poller.close()

    def _enter(self, fd: int, user: str | None, events: int) -> None:
        group = None
        if user is not None and (user == _NOT_LOGGED_IN or self._counts[user] >= _FEW):
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
        self._writers.pop(fd, None)
        self._reported.pop(fd, None)
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
                # The group of unauthenticated connections is kept: it is soon used again.
                del self._groups[user], self._by_fd[group.fd]
                group.epoll.close()


def schedule_fairly(reactor: object) -> None:
    """Install fair scheduling in an epoll reactor; does nothing for others, or the second time.

    The attribute ``who`` of a protocol names its user, and is empty if unauthenticated. Descriptors
    without it are never deferred.
    """
    with suppress(ImportError):  # It is Linux's.
        from twisted.internet.epollreactor import EPollReactor

        if isinstance(reactor, EPollReactor):
            _share(cast("Any", reactor))


def _share(reactor: Any) -> None:
    # Twisted offers no public way; without these attributes the reactor stays unchanged.
    selectables: object = getattr(reactor, "_selectables", None)
    poller: object = getattr(reactor, "_poller", None)
    if isinstance(selectables, dict) and poller is not None and not isinstance(poller, SharedPoll):
        reactor._poller = SharedPoll(
            poller,
            lambda fd: _who(selectables.get(fd)),
            lambda fd: _write(selectables.get(fd)),
        )


def _who(selectable: object) -> str | None:
    protocol = getattr(selectable, "protocol", None)
    while protocol is not None:
        who: str | None = getattr(protocol, "who", None)
        if who is not None:
            return who
        # TLS is in between.
        protocol = getattr(protocol, "wrappedProtocol", None)
    return None


def _write(selectable: Any) -> bool:
    """Write the output of a connection; return False, without doing so, if more would follow.

    Twisted calls nobody after a write, unless a producer waits for it or the connection is to end.
    A timer set by such a call would be late: the reactor has already determined how long to wait.
    If the write fails, the connection is registered, and the reactor ends it.
    """
    if (
        not isinstance(selectable, Server)
        or selectable.producerPaused
        or (selectable.producer is not None and not selectable.streamingProducer)
        or selectable.disconnecting
        or getattr(selectable, "_writeDisconnecting", True)
    ):
        return False
    cast("Any", selectable).doWrite()
    return True
