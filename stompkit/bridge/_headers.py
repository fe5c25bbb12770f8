"""The headers of a forwarded message: which are kept, removed and added."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from typing import Final, NewType

from stompkit._common.text import trimmed
from stompkit.bridge._dialects import Dialect

__all__ = [
    "HOPS",
    "ID",
    "DeliveryKey",
    "delivery_key",
    "for_refused",
    "for_sink",
    "forwarded",
    "hops_of",
    "identity",
]

#: Sites that a message has passed, oldest first, separated by commas.
HOPS: Final = "stompkit-hops"
#: Unique id of a message across all sites; every copy of the message has the same id.
ID: Final = "stompkit-bridge-id"
#: Headers of a dead letter: the reason of the refusal, and the intended destination.
_REASON: Final = "stompkit-bridge-refused"
_DESTINATION: Final = "stompkit-bridge-destination"
_MOST_OF_REASON: Final = 500
#: Header with the producer's own id of a message, used to detect duplicates.
_EVENT_ID: Final = "event-id"
_LONGEST_ID: Final = 200
_LAST_PRIORITY: Final = 9

#: Key of one message in one destination of a source; :func:`identity` is the same for all copies.
DeliveryKey = NewType("DeliveryKey", str)

#: Headers that describe a frame, a delivery or a connection, not the message itself.
_OF_THE_DELIVERY: Final = frozenset(
    {
        "ack",
        "AMQ_SCHEDULED_DELAY",
        "AMQ_SCHEDULED_TIME",
        "content-length",
        "delay",
        "delivery-count",
        "destination",
        "expires",
        "expiration",
        "id",
        "message-id",
        "receipt",
        "redelivered",
        "subscription",
        "transaction",
    }
)


def identity(headers: Mapping[str, str], site: str) -> str:
    """Return the bridge-wide id of a message from a site, or "" if it has no id.

    It is the id that an earlier bridge has set; otherwise the site, and the producer's
    ``event-id`` or the broker's ``message-id``.
    """
    if headers.get(ID):
        return headers[ID]
    own = headers.get(_EVENT_ID) or headers.get("message-id") or ""
    if len(own) > _LONGEST_ID:
        own = hashlib.sha256(own.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{site}:{own}" if own else ""


def delivery_key(
    destination: str, headers: Mapping[str, str], site: str, dialect: Dialect
) -> DeliveryKey:
    """Return the key that only redeliveries of a message share, or "" if it has no id.

    Several messages have the same identity: copies in several queues, a refused message that an
    operator has put back, one that has returned from another site, and an event that its producer
    sends again. Each of them is a message of its own to forward.
    """
    if dialect.keeps_ids or _REASON in headers:
        name = headers.get("message-id")
    else:
        name = identity(headers, site)
        if name and headers.get(HOPS):  # a message that returns has passed more sites
            name = f"{headers[HOPS]}\0{name}"
    return DeliveryKey(f"{destination}\0{name}" if name else "")


def hops_of(headers: Mapping[str, str]) -> list[str]:
    """Return the sites that a message has passed."""
    return [hop for each in headers.get(HOPS, "").split(",") if (hop := each.strip())]


def forwarded(
    headers: Mapping[str, str], site: str, dialect: Dialect, now_s: float, *, persistent: bool
) -> dict[str, str]:
    """Return the headers to forward for a message from a site, with its id and hops.

    The expiry time is in ``expires``, in milliseconds since 1970. ``persistent`` makes the message
    persistent if it has no ``persistent`` header.
    """
    left = _OF_THE_DELIVERY | dialect.stripped
    found = {name: value for name, value in headers.items() if _is_kept(name, left)}
    expires_ms = _expires_ms(headers, now_s)
    if expires_ms:
        found["expires"] = str(expires_ms)
    if not _is_priority(found.get("priority", "0")):
        del found["priority"]
    if persistent:
        found.setdefault("persistent", "true")
    name = identity(headers, site)
    if name:
        found[ID] = name
    found[HOPS] = ",".join([*hops_of(headers), site])
    return found


def _is_kept(name: str, left: Set[str]) -> bool:
    """Return True if a header is forwarded: its broker may remove blanks at the ends of names."""
    read = trimmed(name)
    if not read or read in left:
        return False
    return name == read or read not in (HOPS, ID)


def for_sink(headers: Mapping[str, str], dialect: Dialect, now_s: float) -> dict[str, str]:
    """Return the headers in the form that the destination's broker reads."""
    found = dict(headers)
    if not dialect.expires and "expires" in found:
        left_ms = int(found.pop("expires")) - round(now_s * 1000)
        found["expiration"] = str(max(left_ms, 1))
    return found


def for_refused(headers: Mapping[str, str], to: str, reason: str) -> dict[str, str]:
    """Return the headers of a dead letter for a message that was to be forwarded."""
    found = {**headers, _REASON: reason[:_MOST_OF_REASON], _DESTINATION: to}
    hops = hops_of(found)[:-1]
    del found[HOPS]
    return found | {HOPS: ",".join(hops)} if hops else found


def _expires_ms(headers: Mapping[str, str], now_s: float) -> int:
    """Return the expiry time of a message in milliseconds since 1970; 0 means never."""
    at, within = (_number(headers.get(name, "")) for name in ("expires", "expiration"))
    return at or (round(now_s * 1000) + within if within else 0)


def _number(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= 15
    return int(text) if is_number else 0


def _is_priority(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text[:3]) <= _LAST_PRIORITY
