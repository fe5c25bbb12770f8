"""Servers that break one rule about selectors, temporary queues, or queues and topics."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from threading import Lock

from tests.conformance.proxy import Fault, answers, make_harmless, requests
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line

#: Lock, so that no two threads are both the first.
_LOCK = Lock()

# Selectors.


def selectors(case: str) -> Callable[[Callable[[str], str]], type[Fault]]:
    """Make a fault of a function that changes the selectors of SUBSCRIBE."""

    def make(change: Callable[[str], str]) -> type[Fault]:
        def spoil(frame: Raw) -> None:
            selector = frame.get("selector")
            if selector is not None:
                frame.put("selector", change(selector))

        spoil.__name__ = change.__name__
        spoil.__doc__ = change.__doc__
        return requests("SUBSCRIBE", f"behaviour/selector/{case}")(spoil)

    return make


@selectors("equality")
def letters_are_alike(selector: str) -> str:
    """Compares strings case-insensitively."""
    return selector.replace("'Red'", "'red'")


@selectors("order")
def between_is_exclusive(selector: str) -> str:
    """Excludes the upper limit of BETWEEN."""
    return re.sub(r"BETWEEN (\d) AND 5", r"BETWEEN \1 AND 4", selector)


@selectors("logic")
def left_to_right(selector: str) -> str:
    """Evaluates OR and AND from left to right."""
    return re.sub(r"^\(([a-z]+ = '\w+' OR [a-z]+ = '\w+') AND", r"((\1) AND", selector)


@selectors("sets")
def in_takes_the_first(selector: str) -> str:
    """Compares only with the first string after IN."""
    return re.sub(r"IN \(('\w+'), [^)]*\)", r"IN (\1)", selector)


@selectors("like")
def no_escape(selector: str) -> str:
    """Treats the ESCAPE character of LIKE as an ordinary character."""
    return re.sub(r" ESCAPE '[^']*'", "", selector)


@selectors("arithmetic")
def sums_first(selector: str) -> str:
    """Adds before it multiplies."""
    return selector.replace("(2 + 3 * 2 ", "((2 + 3) * 2 ")


@selectors("quoting")
def apostrophes_are_lost(selector: str) -> str:
    """Drops doubled apostrophes in a string."""
    return re.sub(r"(?<=\w)''(?=\w)", "", selector)


@selectors("missing-header")
def missing_is_different(selector: str) -> str:
    """Treats a missing header as a different value."""
    return re.sub(r"(\w+) <> ('\w+')", r"(\1 <> \2 OR \1 IS NULL)", selector)


@requests("SUBSCRIBE", "behaviour/selector/invalid")
def invalid_is_none(frame: Raw) -> None:
    """Treats an incomplete selector as no selector."""
    selector = frame.get("selector") or "''"
    is_balanced = selector.count("(") == selector.count(")") and selector.count("'") % 2 == 0
    if not is_balanced or not selector.endswith("'"):
        frame.drop("selector")


class SelectorsThrowAway(Fault):
    """Discards messages of a queue that do not match a subscriber's selector."""

    found_by = ("behaviour/selector/others-stay",)

    def __init__(self, line: Line) -> None:
        """Start without subscriptions."""
        super().__init__(line)
        self.red: set[str | None] = set()

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"SUBSCRIBE" and (frame.get("destination") or "").startswith("/queue/"):
            if frame.get("selector") == "colour = 'red'":
                self.red.add(frame.get("id"))
            frame.drop("selector")
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if frame.get("subscription") not in self.red or frame.get("colour") == "red":
            yield frame


# Temporary queues. Other clients see ours as /temp-queue/SECRET/NAME.


def is_address(destination: str | None) -> bool:
    """Return True for the global name of a temporary queue."""
    return (destination or "").startswith("/temp-queue/") and (destination or "").count("/") == 3


@answers("MESSAGE", "behaviour/temporary/reply", "behaviour/temporary/ordinary-reply-to")
def no_reply_to(frame: Raw) -> None:
    """Drops reply-to."""
    frame.drop("reply-to")


@answers("MESSAGE", "behaviour/temporary/ordinary-reply-to")
def reply_to_renamed(frame: Raw) -> None:
    """Translates reply-to to a private name."""
    reply_to = frame.get("reply-to")
    if reply_to is not None and reply_to.startswith("/queue/"):
        frame.put("reply-to", reply_to.replace("/queue/", "/reply-queue/"))


class EverybodyReadsReplies(Fault):
    """Allows every client to subscribe to a temporary queue, and copies all replies to it."""

    found_by = ("behaviour/temporary/private",)
    #: The temporary queue of another client to which this connection has subscribed.
    address: str | None = None

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        destination = frame.get("destination")
        if frame.command == b"SUBSCRIBE" and is_address(destination):
            self.address = destination
            make_harmless(frame)
        elif frame.command == b"SEND" and destination is not None:
            lines = [b"message-id:1", b"subscription:stranger"]
            lines.append(f"destination:{destination}".encode())
            for each in self.connections:
                if each.address == destination:
                    each.to_client(Raw(b"MESSAGE", lines, frame.body))
        yield frame


class OneOwnerForAll(Fault):
    """Maps a temporary queue to that of the first client with this name."""

    found_by = ("behaviour/temporary/same-name",)
    #: The first name that this connection has received.
    address = ""

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        address = frame.get("reply-to") or ""
        if is_address(address):
            self.address = self.address or address
            name = address.rpartition("/")[2]
            known = (each.address for each in self.connections if each.address.endswith(name))
            frame.put("reply-to", next(known, address))
        yield frame


class LateRepliesAreKept(Fault):
    """Keeps messages to a client that is gone for later subscribers."""

    found_by = ("behaviour/temporary/gone",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        destination = frame.get("destination") or ""
        if is_address(destination) and (frame.command == b"SUBSCRIBE" or frame.body == b"late"):
            frame.put("destination", "/queue/kept-" + destination.rpartition("/")[2])
        yield frame


# Queues and topics.


class OneSubscriberOfATopic(Fault):
    """Delivers a message of a topic to one connection only."""

    found_by = ("behaviour/destination/topic-to-all", "1.2/subscribe/id-scope-connection")
    #: The messages of topics that this connection has received.
    names: frozenset[str | None] = frozenset()

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if (frame.get("destination") or "").startswith("/topic/"):
            name = frame.get("message-id")
            with _LOCK:
                if any(name in each.names for each in self.connections if each is not self):
                    return
                self.names |= {name}
        yield frame


class TopicsKeepTheLast(Fault):
    """Keeps messages to a topic without subscribers for the first subscriber."""

    found_by = ("behaviour/destination/topic-to-nobody",)

    def __init__(self, line: Line) -> None:
        """Start without messages."""
        super().__init__(line)
        self.kept: dict[str, Raw] = {}

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        yield frame
        destination = frame.get("destination") or ""
        if frame.command == b"SEND" and destination.startswith("/topic/"):
            line = f"destination:{destination}".encode()
            self.kept[destination] = Raw(b"SEND", [line], frame.body)
        elif frame.command == b"SUBSCRIBE":
            for each in self.connections:
                if destination in each.kept:
                    yield each.kept.pop(destination)


class QueuesCopy(Fault):
    """Delivers a message of a queue to each subscription of a connection."""

    found_by = ("behaviour/destination/two-subscriptions",)

    def __init__(self, line: Line) -> None:
        """Start without subscriptions."""
        super().__init__(line)
        self.ids: dict[str, list[str]] = {}

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        destination, name = frame.get("destination"), frame.get("id")
        if frame.command == b"SUBSCRIBE" and destination is not None and name is not None:
            self.ids.setdefault(destination, []).append(name)
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        yield frame
        destination = frame.get("destination") or ""
        if frame.command == b"MESSAGE" and destination.startswith("/queue/"):
            for name in set(self.ids.get(destination, ())) - {frame.get("subscription")}:
                copy = Raw(frame.command, list(frame.lines), frame.body, frame.eol)
                copy.put("subscription", name)
                yield copy


class NamesWithoutKinds(Fault):
    """Treats a topic as the queue of the same name, if that exists."""

    found_by = ("behaviour/destination/kinds-apart",)
    #: The queues that this connection has used.
    queues: frozenset[str] = frozenset()

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        destination = frame.get("destination") or ""
        if destination.startswith("/queue/"):
            self.queues |= {destination}
        queue = destination.replace("/topic/", "/queue/")
        if frame.command == b"SEND" and any(queue in each.queues for each in self.connections):
            frame.put("destination", queue)
        yield frame
