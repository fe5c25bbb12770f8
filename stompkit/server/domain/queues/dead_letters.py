"""Dead letters: the record of a rejected or expired message, and its return.

A dead letter is the original message with a record in its headers. The names of the record belong
to the broker: :data:`RECORD` is removed from everything that clients send. A client can therefore
neither forge a record nor lose one of its headers to it.

================================== =========================================================
``stompkit-dead-letter-source``      the queue or durable subscription in which it died
``stompkit-dead-letter-destination`` its destination, as its sender has spelled it
``stompkit-dead-letter-reason``      why it died
``stompkit-dead-letter-deliveries``  how often it had been delivered
``stompkit-dead-letter-time``        when it died, milliseconds since the epoch
``stompkit-dead-letter-expires``     its expiry; left out if it does not expire
``stompkit-dead-letter-headers``     as JSON, headers that the broker has changed, with their
                                     original values; ``null`` for none
================================== =========================================================

``original-destination``, ``dead-letter-reason`` and ``dead-letter-deliveries`` repeat a part of
that. Older versions had only these, and trusted them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from stompkit.server.domain.messages import CLAIM, RECORD, Message
from stompkit.server.domain.names import DEAD_LETTERS, Kind, dead_letters_of

__all__ = ["DeadLetter", "dead_letter", "moved_message", "read_dead_letter", "sent_expiry"]

_SOURCE: Final = "stompkit-dead-letter-source"
_DESTINATION: Final = "stompkit-dead-letter-destination"
_REASON: Final = "stompkit-dead-letter-reason"
_DELIVERIES: Final = "stompkit-dead-letter-deliveries"
_TIME: Final = "stompkit-dead-letter-time"
_EXPIRES: Final = "stompkit-dead-letter-expires"
_HEADERS: Final = "stompkit-dead-letter-headers"

#: Headers that describe a dead letter since the first version; senders use the same names.
_SHOWN: Final = ("original-destination", "dead-letter-reason", "dead-letter-deliveries")
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class DeadLetter(NamedTuple):
    """A dead letter that can be put back.

    ``source`` is the queue or durable subscription in which it died, ``first`` the original
    message. Dead letters of durable subscriptions from older versions lack the destination that the
    message was sent to: their destination is the source.
    """

    source: str
    first: Message


def sent_expiry(message: Message) -> float:
    """Return the expiry that a message was sent with, or 0 if a destination limits its lifetime.

    Such a message gets a full lifetime again when it is put back. The limit may be that of a topic
    or a fan-out destination, or one that the settings no longer have: only headers tell.
    """
    is_sent = not message.headers.keys().isdisjoint(("expires", "expiration"))
    return message.expires if is_sent else 0.0


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

    *expires* is its expiry, 0 for none. *more* are additional headers of the dead letter.
    """
    known = read_dead_letter(message)
    if known is not None:
        # The dead letter was moved to another queue, and died once more there.
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
    """Return the record of a dead letter, or ``None`` for any other message."""
    headers = letter.headers
    if _SOURCE not in headers:
        return _read_older(letter)
    try:
        before = _before(headers)
        first = letter.with_headers(_restored(headers, before))
        first.expires = int(headers.get(_EXPIRES, "0")) / 1000
    except (KeyError, ValueError):
        # A client has forged it while an older version allowed that.
        return None
    return DeadLetter(headers[_SOURCE], first)


def _before(headers: Mapping[str, str]) -> dict[str, str | None]:
    """Return the original values of headers that the broker has changed; ``None`` if absent."""
    noted = json.loads(headers.get(_HEADERS, "{}"))
    if not isinstance(noted, dict) or not all(
        value is None or isinstance(value, str) for value in noted.values()
    ):
        raise ValueError("these are no headers")
    return {**dict.fromkeys(_SHOWN), **noted, "destination": headers[_DESTINATION]}


def _restored(headers: Mapping[str, str], before: Mapping[str, str | None]) -> dict[str, str]:
    """Return headers with their original values restored, in order."""
    own = {**headers, **{name: value for name, value in before.items() if value is not None}}
    gone = {name for name, value in before.items() if value is None}
    return {name: value for name, value in own.items() if name not in gone and name not in RECORD}


def _read_older(letter: Message) -> DeadLetter | None:
    """Return the record of a dead letter from an older version, if it is plausible there.

    Since then only the broker can have put it there: messages from clients are marked.
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

    It is a dead letter there only if it is one in its current queue.
    """
    headers = message.headers
    if _SOURCE not in headers and _SHOWN[1] in headers:
        return _moved_older(message, destination, now)
    copy = message.with_headers({**headers, "destination": destination})
    copy.expires = message.expires
    return copy


def _moved_older(message: Message, destination: str, now: float) -> Message:
    """Return a message that claims to be a dead letter, with the known part of a record."""
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
