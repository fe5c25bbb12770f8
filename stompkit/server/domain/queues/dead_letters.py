"""Dead letters: what the broker notes of a message that nobody could use, and the way back.

A dead letter is the message that died, with a record in its headers. The names of the record are
the broker's: :data:`RECORD` is left out of everything that clients send, so a client can neither
forge a record nor lose a header of its own to one.

================================== =========================================================
``stompkit-dead-letter-source``      the queue or durable subscription in which it died
``stompkit-dead-letter-destination`` its destination, as its sender has spelled it
``stompkit-dead-letter-reason``      why it died
``stompkit-dead-letter-deliveries``  how often it had been delivered
``stompkit-dead-letter-time``        when it died, milliseconds since the epoch
``stompkit-dead-letter-expires``     until when it is to be delivered; left out without an end
``stompkit-dead-letter-headers``     as JSON, headers that the broker has changed, with the
                                     values that they had; ``null`` for none
================================== =========================================================

``original-destination``, ``dead-letter-reason`` and ``dead-letter-deliveries`` say some of that
once more. Older versions had no others, and took theirs for the truth.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from stompkit.server.domain.messages import CLAIM, RECORD, Message
from stompkit.server.domain.names import DEAD_LETTERS, Kind, dead_letters_of
from stompkit.server.settings.broker import Policy

__all__ = ["DeadLetter", "dead_letter", "moved_message", "read_dead_letter", "sent_expiry"]

_SOURCE: Final = "stompkit-dead-letter-source"
_DESTINATION: Final = "stompkit-dead-letter-destination"
_REASON: Final = "stompkit-dead-letter-reason"
_DELIVERIES: Final = "stompkit-dead-letter-deliveries"
_TIME: Final = "stompkit-dead-letter-time"
_EXPIRES: Final = "stompkit-dead-letter-expires"
_HEADERS: Final = "stompkit-dead-letter-headers"

#: What a dead letter has said of itself from the beginning, under names that senders use as well.
_SHOWN: Final = ("original-destination", "dead-letter-reason", "dead-letter-deliveries")
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class DeadLetter(NamedTuple):
    """A dead letter that can go back.

    ``source`` is the queue or durable subscription in which it died, ``first`` the message that
    it was there. The letters that older versions made of what a durable subscription had don't
    know where that was sent to: their destination is the source.
    """

    source: str
    first: Message


def sent_expiry(message: Message, policy: Policy) -> float:
    """Return until when a message is to be delivered, 0 for one that only its queue gives an end.

    That one has its time once more when it goes back.
    """
    is_sent = not message.headers.keys().isdisjoint(("expires", "expiration"))
    return message.expires if is_sent or not policy.message_ttl_s else 0.0


def dead_letter(
    message: Message,
    source: str,
    reason: str,
    deliveries: int,
    now: float,
    expires: float,
    more: Mapping[str, str] = _NOTHING,
) -> Message:
    """Return the dead letter of *message*, which died in *source*.

    *expires* is until when it is to be delivered, 0 without an end. *more* are headers that the
    letter has over those of the message.
    """
    known = read_dead_letter(message)
    if known is not None:
        # Somebody has moved the letter elsewhere, where it has died once more.
        message, expires = known.first, known.first.expires
    own = message.headers
    shown = dict(zip(_SHOWN, (source, reason, str(deliveries)), strict=True))
    changed = {"destination": dead_letters_of(source), **shown, **more}
    record = {
        _SOURCE: source,
        _DESTINATION: own["destination"],
        _REASON: reason,
        _DELIVERIES: str(deliveries),
        _TIME: str(round(now * 1000)),
    }
    if expires:
        record[_EXPIRES] = str(round(expires * 1000))
    before = {name: own.get(name) for name in changed if name in own or name in more}
    del before["destination"]
    if before:
        record[_HEADERS] = json.dumps(before)
    added = {name: value for name, value in {**changed, **record}.items() if name not in own}
    kept = {name: changed.get(name, value) for name, value in own.items()}
    return message.with_headers({**added, **kept, **record})


def read_dead_letter(letter: Message) -> DeadLetter | None:
    """Return what a message says of how it died, or ``None`` for one that is no dead letter."""
    headers = letter.headers
    if _SOURCE not in headers:
        return _read_older(letter)
    try:
        before = _before(headers)
        first = letter.with_headers(_restored(headers, before))
        first.expires = int(headers.get(_EXPIRES, "0")) / 1000
    except (KeyError, ValueError):
        # A client has made it up when an older version let it.
        return None
    return DeadLetter(headers[_SOURCE], first)


def _before(headers: Mapping[str, str]) -> dict[str, str | None]:
    """Return what headers that the broker has changed were before; ``None`` for not there."""
    noted = json.loads(headers.get(_HEADERS, "{}"))
    if not isinstance(noted, dict) or not all(
        value is None or isinstance(value, str) for value in noted.values()
    ):
        raise ValueError("these are no headers")
    return {**dict.fromkeys(_SHOWN), **noted, "destination": headers[_DESTINATION]}


def _restored(headers: Mapping[str, str], before: Mapping[str, str | None]) -> dict[str, str]:
    """Return headers with the values that some of them had before, in their order."""
    own = {**headers, **{name: value for name, value in before.items() if value is not None}}
    gone = {name for name, value in before.items() if value is None}
    return {name: value for name, value in own.items() if name not in gone and name not in RECORD}


def _read_older(letter: Message) -> DeadLetter | None:
    """Return what a letter of an older version says, if it can be true where the letter is.

    Since then nobody but the broker can have put it there: what clients send is marked.
    """
    headers = letter.headers
    if CLAIM in headers or not headers.keys() >= set(_SHOWN):
        return None
    source = headers["original-destination"]
    place = DEAD_LETTERS + source.removeprefix(Kind.QUEUE.value).removeprefix("/")
    if headers["destination"] != place:
        return None
    before = {**dict.fromkeys(_SHOWN), "destination": source}
    return DeadLetter(source, letter.with_headers(_restored(headers, before)))


def moved_message(message: Message, destination: str, now: float) -> Message:
    """Return *message* for the queue to which an operator moves it.

    It is a dead letter there only if it is one where it comes from.
    """
    headers = message.headers
    if _SOURCE not in headers and _SHOWN[1] in headers:
        return _moved_older(message, destination, now)
    copy = message.with_headers({**headers, "destination": destination})
    copy.expires = message.expires
    return copy


def _moved_older(message: Message, destination: str, now: float) -> Message:
    """Return a message that says it is a dead letter, with what can be noted of that."""
    headers, letter = message.headers, read_dead_letter(message)
    if letter is not None:
        reason, deliveries = headers[_SHOWN[1]], headers[_SHOWN[2]]
        times = int(deliveries) if deliveries.isdecimal() else 0
        headers = dead_letter(letter.first, letter.source, reason, times, now, 0.0).headers
    elif destination.startswith(DEAD_LETTERS):
        headers = {**headers, CLAIM: "moved"}
    else:
        headers = {name: value for name, value in headers.items() if name != CLAIM}
    copy = message.with_headers({**headers, "destination": destination})
    copy.expires = message.expires
    return copy
