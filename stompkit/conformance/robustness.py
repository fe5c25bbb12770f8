"""Helpers of the cases about robustness: bystanders, and the outcomes of malformed frames."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from stompkit.conformance.malformed import Malformed
from stompkit.conformance.peer import Peer
from stompkit.conformance.requirements import statements
from stompkit.conformance.target import Target, is_alive
from stompkit.conformance.verdict import FailedError, UnsupportedError

__all__ = [
    "NEIGHBOURS",
    "RECEIPTS",
    "STREAM",
    "WHOLE_FRAMES",
    "Bystander",
    "comes_back",
    "endure",
    "need_receipts",
    "settle",
    "summary",
]

#: The specifications do not say what a server does about a client that breaks them. They do say
#: what it owes to another client that keeps to them: that is what FAILED rests on here.
NEIGHBOURS: Final = statements("subscribe/delivered-as-message")
#: A session is frames and nothing else: how the octets are cut on their way is no part of it.
STREAM: Final = statements("bnf/frame-stream", "bnf/stream")
#: A frame with a receipt is answered.
RECEIPTS: Final = statements("receipt/server-sends-receipt", "receipt/server-acknowledges")
#: A frame ends in NUL: without that it is none.
WHOLE_FRAMES: Final = statements("frame/null-ends-frame", "frame/null-terminator")

#: Time in seconds spent on one target connection before the next one is polled.
_SLICE_S: Final = 0.002
#: Time in seconds for the answer to a malformed frame before more is sent: data that is unread when
#: a server closes can cost the client its ERROR.
_ANSWER_S: Final = 0.25
_NO_ANSWER: Final = "no answer"
#: Time in seconds for a target to recover by itself.
_RETURN_S: Final = 3.0
_PAUSE_S: Final = 0.1


class Bystander:
    """A well-behaved client, whose sessions were opened before the harmful ones.

    One of them sends what the other one receives: a server may leave out the sender of a message.
    """

    #: Number of its connections.
    CONNECTIONS: Final = 2

    def __init__(self, target: Target) -> None:
        """Open the sessions, with subscriptions to a new queue and, if possible, a new topic."""
        self._destinations = {"queue": target.queue()}
        if target.has_topics:
            self._destinations["topic"] = target.topic()
        self._peer, self._sender = target.connect(), target.connect()
        self._sent = 0
        for name, destination in self._destinations.items():
            target.subscribe(self._peer, destination, id=name)

    def check(self, trouble: str) -> None:
        """Send messages to itself; raises :class:`FailedError` if they do not come."""
        for destination in self._destinations.values():
            self._sent += 1
            body = b"bystander %d" % self._sent
            try:
                self._sender.send("SEND", {"destination": destination}, body)
                while self._peer.expect("MESSAGE").body != body:
                    pass
            except FailedError as error:
                raise FailedError(f"after {trouble} a session beside it is lost: {error}") from None


def need_receipts(target: Target) -> None:
    """Raise :class:`UnsupportedError` if the target answers no receipts: they are required."""
    if not target.address.has_receipts:
        raise UnsupportedError("the target answers no receipts: --no-receipts")


def settle(
    peers: Iterable[Peer], is_done: Callable[[Peer], bool], seconds: float
) -> dict[Peer, str]:
    """Read from connections until each is done or closed, or the time is up.

    Returns those that sent invalid data, with the reasons.
    """
    until = time.monotonic() + seconds
    waiting = list(peers)
    unreadable: dict[Peer, str] = {}
    while waiting and time.monotonic() < until:
        for peer in waiting:
            try:
                peer.collect(_SLICE_S)
            except FailedError as error:
                unreadable[peer] = str(error)
        waiting = [
            each
            for each in waiting
            if not (each.is_closed_by_target or each in unreadable or is_done(each))
        ]
    return unreadable


def comes_back(target: Target) -> bool:
    """Return True if the target accepts a new session, immediately or after a while."""
    until = time.monotonic() + _RETURN_S
    while not is_alive(target.address, target.version):
        if time.monotonic() >= until:
            return False
        # A target that is being restarted refuses connections meanwhile.
        time.sleep(_PAUSE_S)
    return True


# Malformed frames.


@dataclass
class _Attempt:
    """A malformed frame that has been sent."""

    row: Malformed
    queue: str
    peer: Peer
    in_session: bool
    #: Reason why the answer cannot be parsed.
    unreadable: str = ""

    @classmethod
    def make(cls, target: Target, row: Malformed, *, in_session: bool) -> _Attempt:
        """Send it on a new connection, to a separate queue."""
        queue = target.queue()
        peer = target.connect() if in_session else target.open()
        peer.send_raw(row.to(queue, target.connect_headers()))
        return cls(row, queue, peer, in_session)

    @property
    def answer(self) -> str:
        """The outcome, in a word or two."""
        if self.unreadable:
            return "octets without sense"
        # The first frame of a session is the answer to a proper CONNECT.
        frames = self.peer.frames[self.in_session :]
        commands = {frame.command for frame in frames}
        receipts = {frame.headers.get("receipt-id") for frame in frames}
        if "ERROR" in commands:
            return "ERROR, close" if self.peer.is_closed_by_target else "ERROR"
        if "m" in receipts or "CONNECTED" in commands:
            return "accepted"
        if self.peer.is_closed_by_target:
            return "close"
        return "ignored" if "probe" in receipts else _NO_ANSWER

    def probe(self, target: Target) -> None:
        """Check if the session continues."""
        self.peer.send("SEND", {"destination": target.sink(), "receipt": "probe"}, b"x")


def _listen(attempts: Sequence[_Attempt], last_words: Sequence[str], seconds: float) -> None:
    """Wait until no connection gets more answers; nothing follows those in ``last_words``."""
    by_peer = {each.peer: each for each in attempts}
    unreadable = settle(by_peer, lambda peer: by_peer[peer].answer in last_words, seconds)
    for peer, reason in unreadable.items():
        by_peer[peer].unreadable = reason


def endure(target: Target, rows: Sequence[Malformed], *, in_session: bool = True) -> dict[str, str]:
    """Send each on a separate connection; return the answers by name.

    ``in_session`` is true if CONNECT precedes it. Raises :class:`FailedError` if another session is
    lost. Lapses are messages delivered from ambiguous frames, and answers that cannot be parsed.
    """
    bystander = Bystander(target)
    attempts = []
    try:
        for row in rows:
            attempts.append(_Attempt.make(target, row, in_session=in_session))
            bystander.check(f"{row.name!r}, or something before it,")
        _listen(attempts, ("accepted", "ERROR"), _ANSWER_S)
        for attempt in attempts:
            if in_session and attempt.answer == _NO_ANSWER:
                attempt.probe(target)
        # An ERROR may be followed by the end of the connection.
        _listen(attempts, ("accepted", "ignored"), target.quiet_s)
        bystander.check("all that")
    except FailedError as error:
        raise _culprit(target, rows, in_session=in_session) or error from None
    for attempt in attempts:
        attempt.peer.close()
        target.should(not attempt.unreadable, f"{attempt.row.name}: {attempt.unreadable}")
    _look_for_deliveries(target, attempts)
    return {attempt.row.name: attempt.answer for attempt in attempts}


def _look_for_deliveries(target: Target, attempts: Sequence[_Attempt]) -> None:
    """Check which of the frames were delivered to queues."""
    watchers = {}
    for attempt in attempts:
        peer = watchers[attempt.row.name] = target.connect()
        peer.send("SUBSCRIBE", {"destination": attempt.queue, "id": "w"})

    def has_message(peer: Peer) -> bool:
        return any(frame.command == "MESSAGE" for frame in peer.frames)

    unreadable = settle(watchers.values(), has_message, target.quiet_s)
    for attempt in attempts:
        peer = watchers[attempt.row.name]
        peer.close()
        may_be = attempt.row.is_clear and attempt.in_session
        target.should(may_be or not has_message(peer), f"{attempt.row.name}: delivered")
        reason = unreadable.get(peer)
        target.should(reason is None, f"{attempt.row.name}: passed on ({reason})")


def _culprit(target: Target, rows: Sequence[Malformed], *, in_session: bool) -> FailedError | None:
    """Send them again, one after the other, to find the one that does the harm."""
    for row in rows:
        if not comes_back(target):
            break
        try:
            bystander = Bystander(target)
            attempt = _Attempt.make(target, row, in_session=in_session)
        except FailedError:
            continue  # the effects of the earlier frames are not over yet
        _listen([attempt], ("accepted", "ERROR"), _ANSWER_S)
        try:
            bystander.check(repr(row.name))
        except FailedError as error:
            return error
    return None


def summary(answers: dict[str, str]) -> list[str]:
    """Return the answers, each with the frames that got it."""
    names: dict[str, list[str]] = {}
    for name, each in answers.items():
        names.setdefault(each, []).append(name)
    return [f"{each}: {', '.join(names[each])}" for each in sorted(names)]
