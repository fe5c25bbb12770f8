"""Features that a target may lack, so that a case which relies on them tests nothing.

STOMP leaves it to the server what its destinations do with messages, and how many clients it
serves.
"""

from __future__ import annotations

from typing import Final

from stompkit.conformance.peer import Peer
from stompkit.conformance.target import Target, comes_alive
from stompkit.conformance.verdict import FailedError, SuiteError, UnsupportedError

__all__ = ["lacking"]

#: Number of sessions that the suite may have at the same time, in several cases.
_CONNECTIONS: Final = 20
#: Number of messages of which a queue has to keep one.
_KEPT: Final = 3


def lacking(target: Target) -> str:
    """Return what the case that has ended relied on and the target lacks; empty if nothing.

    It tries that in new sessions, and concludes nothing from what does not work at all.
    """
    another = target.again()
    try:
        if target.is_turned_away and _refuses_some(another, target.uses.most_open):
            return "the target refuses sessions while others are open: --jobs 1 needs the fewest"
        if target.uses.is_kept and not _keeps(another):
            return "the target keeps no message for a subscription that comes later"
        if target.uses.is_shared and not _shares(another):
            return "the target takes one connection that subscribes to a queue"
    except (FailedError, UnsupportedError, SuiteError):
        return ""  # it fails at what each server does
    finally:
        another.finish()
    return ""


def _refuses_some(target: Target, most_open: int) -> bool:
    """Return True if the target refuses a session while others are open, and takes one alone."""
    # Sessions of other cases may be open, and end soon.
    if not comes_alive(target.address, target.version, target.address.recovery_s):
        return False
    try:
        for _ in range(max(most_open, _CONNECTIONS)):
            target.connect()
    except FailedError:
        return target.is_turned_away
    return False


def _keeps(target: Target) -> bool:
    """Return False if a message arrives at a subscription that was there before, and only there."""
    waiting = target.queue()
    peer = target.connect()
    if _takes(peer, waiting):
        late = target.connect()
        _subscribe(late, waiting)
        if late.gather_messages(1):
            return True
    return not _delivers(target)


def _takes(peer: Peer, queue: str) -> bool:
    """Send to a queue without subscriptions, and close; return False if the target refuses."""
    try:
        for _ in range(_KEPT):
            peer.call("SEND", {"destination": queue}, b"for later")
    except FailedError:
        if not peer.is_refused:
            raise
        return False
    peer.close()
    return True


def _delivers(target: Target) -> bool:
    """Return True if a message arrives at the only subscription to a queue."""
    queue, peer = target.queue(), target.connect()
    _subscribe(peer, queue)
    peer.send("SEND", {"destination": queue}, b"for now")
    return bool(peer.gather_messages(1))


def _shares(target: Target) -> bool:
    """Return False if a second connection cannot subscribe to a queue, and the first one can."""
    queue = target.queue()
    target.subscribe(target.connect(), queue)
    second = target.connect()
    try:
        target.subscribe(second, queue)
    except FailedError:
        return not second.is_refused
    return True


def _subscribe(peer: Peer, queue: str) -> None:
    """Subscribe without waiting for the RECEIPT: it may come after messages."""
    peer.send("SUBSCRIBE", {"destination": queue, "id": "s1"})
