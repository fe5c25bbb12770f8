"""Rules that each frame of a target has to keep, whatever its case is about.

A case looks at the frames of its own subject. A target may break a rule in others only: in the
RECEIPT of one command, or in the messages of topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from stompkit.conformance.requirements import catalogue
from stompkit.conformance.wire.octets import Headers
from stompkit.frames import VERSIONS, Frame, Version

__all__ = ["MUST_CLOSE", "Requests", "broken_rules", "of_grammar", "spoken"]

#: The statement that the connection ends after ERROR, of the only version that makes it.
MUST_CLOSE: Final = "1.2/error/must-close"
#: Names of statements about parts of the grammar, by the code of a violation; a line without a
#: colon is the rest of a value that holds a line feed.
_PARTS: Final = {
    "bad-utf8": "encoding/utf8-headers",
    "bad-escape": "encoding/encode-reverse",
    "body-not-allowed": "receipt-frame/empty-body",
    "raw-colon": "bnf/header-value-chars",
    "bad-header": "bnf/header-value-chars",
}
#: Name of the statement about the grammar as a whole, for all other violations.
_GRAMMAR: Final = "server-frames/closed-set"
#: Names of the statement that UNSUBSCRIBE ends delivery.
_ENDED: Final = {"1.0": "unsubscribe/stops-delivery", "1.2": "unsubscribe/no-more-messages"}
#: The subscription modes whose messages have to be acknowledged.
_ACKNOWLEDGED: Final = frozenset({"client", "client-individual"})


@dataclass
class Requests:
    """Receipts and subscription modes that a connection has asked for by whole frames."""

    frames: int = 0
    receipts: Counter[str] = field(default_factory=Counter)
    #: The modes of all subscriptions with an id.
    modes: dict[str, set[str]] = field(default_factory=dict)
    #: Number of subscriptions with each id, and the id that UNSUBSCRIBE names, by its receipt.
    subscribed: Counter[str] = field(default_factory=Counter)
    unsubscribed: dict[str, str] = field(default_factory=dict)

    def note(self, command: str, headers: Headers) -> None:
        """Record a frame that is about to be sent."""
        self.frames += 1
        values: dict[str, list[str]] = {}
        for name, value in headers.items() if isinstance(headers, Mapping) else headers:
            values.setdefault(name, []).append(value)
        # Of repeated headers a server may take any.
        asked, ids = values.get("receipt", []), values.get("id", [""])
        self.receipts.update(asked)
        if command == "SUBSCRIBE":
            # A browser acknowledges nothing, and gets a message that ends the list.
            modes = ["browser"] if "browser" in values else values.get("ack", ["auto"])
            for id in ids:
                self.modes.setdefault(id, set()).update(modes)
            self.subscribed.update(ids)
        elif command == "UNSUBSCRIBE" and len(asked) == len(ids) == 1:
            self.unsubscribed[asked[0]] = ids[0]

    def ended_by(self, receipt: str) -> str | None:
        """Return the id of the subscription that has ended for good when this RECEIPT comes."""
        id = self.unsubscribed.get(receipt)
        is_clear = id is not None and self.subscribed[id] == self.receipts[receipt] == 1
        return id if is_clear else None


def spoken(frames: list[Frame], version: Version) -> Version | None:
    """Return the version of a session, if its first frame says so.

    ``version`` is that of the case: on 1.0, CONNECTED need not have a version.
    """
    if not frames or frames[0].command != "CONNECTED":
        return None
    named = frames[0].headers.get("version", "1.0" if version == "1.0" else "")
    return next((each for each in VERSIONS if each == named), None)


def broken_rules(
    frames: list[Frame],
    version: Version,
    requests: Requests | None,
    describe: Callable[[Frame], str],
) -> Iterator[tuple[str, str]]:
    """Yield the statements that the frames of a session violate, with the observation.

    Without ``requests``, which are unknown after raw bytes, what depends on them is left out.
    ``describe`` returns the words for a frame.
    """
    receipts: Counter[str] = Counter()
    ended: set[str] = set()
    for frame in frames:
        if frame.command == "MESSAGE":
            yield from _of_message(frame, version, requests, describe)
            if frame.headers.get("subscription") in ended:
                text = f"{describe(frame)} comes after the RECEIPT of its UNSUBSCRIBE"
                yield _rule(version, _ENDED.get(version, _ENDED["1.2"])), text
        elif frame.command == "RECEIPT":
            receipt = frame.headers.get("receipt-id")
            receipts[receipt or ""] += 1
            if requests and (id := requests.ended_by(receipt or "")) is not None:
                ended.add(id)
            if receipt is None or (requests and receipts[receipt] > requests.receipts[receipt]):
                text = f"{describe(frame)}, which no frame has asked for"
                yield _rule(version, "receipt-frame/receipt-id"), text


def of_grammar(version: Version, violation: str, code: str) -> tuple[str, str]:
    """Return the statement that octets outside the strict grammar violate, and the observation."""
    name = _GRAMMAR if version == "1.0" else _PARTS.get(code, _GRAMMAR)
    return _rule(version, name), f"the server's octets break the grammar: {violation}"


def _of_message(
    frame: Frame,
    version: Version,
    requests: Requests | None,
    describe: Callable[[Frame], str],
) -> Iterator[tuple[str, str]]:
    needed = ["destination", "message-id"]
    if version != "1.0":
        needed.append("subscription")
    modes = requests.modes.get(frame.headers.get("subscription", ""), set()) if requests else set()
    if version == "1.2" and modes and modes <= _ACKNOWLEDGED:
        needed.append("ack")
    for name in needed:
        if not frame.headers.get(name):
            rule = "message/ack-header" if name == "ack" else f"message/{name}"
            yield _rule(version, rule), f"{describe(frame)} has no {name} header"


def _rule(version: Version, name: str) -> str:
    """Return the id of a statement, which 1.0 may have under a longer name."""
    ids = (f"{version}/{name}", f"{version}/{name}-header")
    return next(each for each in ids if each in catalogue())
