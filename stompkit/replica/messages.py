"""The message format that replicas exchange over a broker.

The body of a message is UTF-8 text: a line of JSON with the facts, and a line for each item. An
item line is ``=`` and the item, or ``+`` and its base64 if it is not one line of text. A message
larger than a frame is sent in parts. :func:`pack` describes the headers.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from stompkit._common.moved import renamed
from stompkit.replica.identity import branch_of, is_origin
from stompkit.replica.problems import MessageError
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.signing import Signer, UntrustedError, Verifier
from stompkit.replication.model.frames import Packet

__all__ = [
    "CONTENT_TYPE",
    "FORMAT",
    "MAX_BODY_BYTES",
    "MAX_FACTS_BYTES",
    "MAX_ITEMS",
    "MAX_PARTS",
    "Message",
    "MessageError",
    "SignedChangeset",
    "Unpacker",
    "pack",
]

CONTENT_TYPE: Final = "application/vnd.stompkit.replica"
#: Version of the format. It is raised when readers of the previous one would misunderstand it.
FORMAT: Final = 1
#: Default maximum size of a body in bytes: accepted by any broker and fast to send.
MAX_BODY_BYTES: Final = 256 * 1024
#: Maximum size in bytes of the facts of a message, as JSON.
MAX_FACTS_BYTES: Final = 1024 * 1024
#: Maximum number of items of a message.
MAX_ITEMS: Final = 65_536
#: Maximum number of parts of a message.
MAX_PARTS: Final = 99_999

#: Overhead in bytes of a part, beside its body.
_PART_BYTES: Final = 1024
_ID_BYTES: Final = 32
#: Minimum size in bytes of a part: a part must hold at least one character.
_LEAST_BODY_BYTES: Final = 16
_IS_KIND: Final = re.compile("[a-z_]{1,32}").fullmatch
_IS_ID: Final = re.compile("[0-9a-f]{64}").fullmatch
_IS_SIGNATURE: Final = re.compile("[A-Za-z0-9+/]{86}==").fullmatch
_IS_OCCASION: Final = re.compile("[0-9a-z]{1,32}").fullmatch
_IS_NUMBER: Final = re.compile("[1-9][0-9]{0,4}").fullmatch
#: Spellings that brokers use.
_TRUE: Final = ("true", "1")
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_FACTS: Final = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class Message:
    """A message from one node to others."""

    #: Kind of message, such as ``changes``, ``have`` or ``want``: lower-case letters and ``_``.
    kind: str
    #: Origin of the sending node.
    sender: str
    #: Data that JSON can represent.
    facts: dict[str, Any]
    #: Items in bytes, as :meth:`SignedChangeset.encode` returns them.
    items: list[bytes] = field(default_factory=list)
    #: For a received message: an identifier, equal for messages of equal content.
    id: str = field(default="", compare=False)
    #: For a received message: its frames, to forward them unchanged.
    packets: list[Packet] = field(default_factory=list, compare=False, repr=False)


class _Head(NamedTuple):
    """Header values that all parts of a message share."""

    kind: str
    sender: str
    id: str
    parts: int


def pack(
    message: Message,
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
    signer: Signer | None = None,
    persistent: bool = False,
    occasion: str = "",
) -> list[Packet]:
    """Split a message into frames with bodies of at most ``max_body_bytes``.

    The headers are ``content-type``, ``stompkit-schema`` (the format), ``stompkit-kind``,
    ``stompkit-node`` (the sender), ``stompkit-message`` (BLAKE2b of content and sender),
    ``stompkit-part`` and ``stompkit-parts`` (from 1), and ``event-id``. With a signer, there is
    ``stompkit-signature`` (base64, of this part), and on request ``persistent``. Equal messages
    produce equal frames, unless ``occasion`` differs, which the event-id ends with: whoever removes
    duplicates of a frame keeps an equal answer to a later request. Raises ValueError for a message
    that :class:`Unpacker` would refuse.
    """
    if max_body_bytes < _LEAST_BODY_BYTES:
        raise ValueError(f"a frame of at most {max_body_bytes} octets holds nothing")
    if not (_IS_KIND(message.kind) and is_origin(message.sender)):
        raise ValueError(f"kind {message.kind!r} or sender {message.sender!r} is none")
    facts = _ENCODER.encode(message.facts)
    if len(facts) > MAX_FACTS_BYTES or len(message.items) > MAX_ITEMS:
        raise ValueError(f"{len(facts)} octets of facts, {len(message.items)} items: too much")
    body = b"\n".join([facts, *map(_line, message.items)])
    bodies = list(_pieces(body, max_body_bytes))
    if len(bodies) > MAX_PARTS:
        raise ValueError(f"a message would go in {len(bodies)} parts, more than {MAX_PARTS}")
    id = _id(message.kind, message.sender, body)
    head = _Head(message.kind, message.sender, id, len(bodies))
    made = []
    for number, each in enumerate(bodies, 1):
        signature = ""
        if signer is not None:
            signed = signer.sign(_signed(id, number, len(bodies), each))
            signature = base64.b64encode(signed).decode()
        made.append(_packet(head, number, each, signature, occasion, is_persistent=persistent))
    return made


def _packet(
    head: _Head,
    number: int,
    body: bytes,
    signature: str,
    occasion: str,
    *,
    is_persistent: bool,
) -> Packet:
    headers = {
        "content-type": CONTENT_TYPE,
        "stompkit-schema": str(FORMAT),
        "stompkit-kind": head.kind,
        "stompkit-node": head.sender,
        "stompkit-message": head.id,
        "stompkit-part": str(number),
        "stompkit-parts": str(head.parts),
        "event-id": f"{head.id}.{number}" + (f".{occasion}" if occasion else ""),
    }
    if signature:
        headers["stompkit-signature"] = signature
    if is_persistent:
        headers["persistent"] = "true"
    return Packet(headers, body)


def _line(item: bytes) -> bytes:
    """Return an item encoded as one line of text."""
    # Some brokers and clients truncate a body at NUL, or normalise line endings.
    is_line = not (b"\n" in item or b"\r" in item or b"\0" in item)
    if is_line and not item.isascii():
        try:
            item.decode()
        except UnicodeDecodeError:
            is_line = False
    return b"=" + item if is_line else b"+" + base64.b64encode(item)


def _item(line: bytes) -> bytes:
    """Decode a line of :func:`_line`."""
    if line.startswith(b"="):
        return line[1:]
    if not line.startswith(b"+"):
        raise MessageError("an item begins neither with '=' nor with '+'")
    try:
        return base64.b64decode(line[1:], validate=True)
    except binascii.Error as error:
        raise MessageError(f"an item is no base64: {error}") from None


def _pieces(body: bytes, most: int) -> Iterator[bytes]:
    """Split text between characters: each piece is valid text."""
    start = 0
    while start < len(body):
        end = start + most
        if end < len(body):
            while body[end] & 0xC0 == 0x80:
                end -= 1
        yield body[start:end]
        start = end


def _id(kind: str, sender: str, body: bytes) -> str:
    """Return the identifier of a message, a hash of its content and sender."""
    # BLAKE2b is several times as fast as SHA-256, and everything sent is hashed.
    hashed = hashlib.blake2b(f"{FORMAT}\n{kind}\n{sender}\n".encode(), digest_size=_ID_BYTES)
    hashed.update(body)
    return hashed.hexdigest()


def _signed(id: str, number: int, parts: int, body: bytes) -> bytes:
    """Return the data to sign for a part; the id stands for the whole, which a part lacks."""
    digest = hashlib.blake2b(body, digest_size=_ID_BYTES).hexdigest()
    return f"stompkit replica message {FORMAT}\n{id}\n{number}\n{parts}\n{digest}".encode()


@dataclass(slots=True)
class _Partial:
    """A message of which some parts have arrived."""

    found: dict[int, Packet] = field(default_factory=dict)
    size: int = 0


class Unpacker:
    """Reassembles messages; parts may arrive in any order and repeatedly."""

    def __init__(
        self,
        verifier: Verifier | None = None,
        *,
        max_bytes: int = 64 * 1024 * 1024,
        max_partial: int = 1000,
    ) -> None:
        """Start empty; ``max_bytes`` limits all incomplete messages together, and each message.

        ``max_partial`` is the maximum number of incomplete messages. Beyond the limits, those whose
        last part is the oldest are dropped.
        """
        self._verifier = Verifier() if verifier is None else verifier
        self._max_bytes = max_bytes
        self._max_partial = max_partial
        self._waiting: OrderedDict[_Head, _Partial] = OrderedDict()
        #: Size in bytes of all incomplete messages, with their overhead.
        self.waiting_bytes = 0
        #: Number of incomplete messages that were dropped for lack of room.
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """Number of incomplete messages."""
        return len(self._waiting)

    def add(self, headers: Mapping[str, str], body: bytes) -> Message | None:
        """Add a frame; returns the message that it completes, if any.

        Raises :class:`MessageError` for a frame that is malformed, not signed by a trusted node,
        or part of a message that is too large.
        """
        head, number, packet = self._read(headers, body)
        if head.parts == 1:
            return _message(head, [packet])
        partial = self._waiting.setdefault(head, _Partial())
        self._waiting.move_to_end(head)
        if number not in partial.found:
            size = len(body) + _PART_BYTES
            partial.found[number] = packet
            partial.size += size
            self.waiting_bytes += size
        if partial.size > self._max_bytes:
            self._forget(head)
            raise self._too_large()
        if len(partial.found) == head.parts:
            self._forget(head)
            return _message(head, [partial.found[each] for each in range(1, head.parts + 1)])
        while self.waiting_bytes > self._max_bytes or len(self._waiting) > self._max_partial:
            self._forget(next(iter(self._waiting)))
            self.dropped += 1
        return None

    def _forget(self, head: _Head) -> None:
        self.waiting_bytes -= self._waiting.pop(head).size

    def _too_large(self) -> MessageError:
        return MessageError(f"a message takes more than {self._max_bytes} octets")

    def _read(self, headers: Mapping[str, str], body: bytes) -> tuple[_Head, int, Packet]:
        """Return the parsed headers and the frame without the headers that a broker added."""
        given = headers.get("stompkit-schema", "")
        if given != str(FORMAT):
            raise MessageError(f"this is format {given[:20]!r} of a message, and {FORMAT} is known")
        head = _Head(
            _header(headers, "stompkit-kind", _IS_KIND),
            _header(headers, "stompkit-node", is_origin),
            _header(headers, "stompkit-message", _IS_ID),
            int(_header(headers, "stompkit-parts", _IS_NUMBER)),
        )
        number = int(_header(headers, "stompkit-part", _IS_NUMBER))
        if number > head.parts:
            raise MessageError(f"part {number} of {head.parts}")
        if len(body) > self._max_bytes:
            raise self._too_large()
        signature = headers.get("stompkit-signature", "")
        if signature:
            _header(headers, "stompkit-signature", _IS_SIGNATURE)
        if self._verifier.is_strict:
            octets = _signed(head.id, number, head.parts, body)
            try:
                self._verifier.verify(branch_of(head.sender), octets, base64.b64decode(signature))
            except UntrustedError as reason:
                raise MessageError(str(reason)) from reason
        is_persistent = headers.get("persistent") in _TRUE
        # A relay passes it on, so that equal answers remain different there.
        event_id = headers.get("event-id", "")
        occasion = event_id.removeprefix(f"{head.id}.{number}.")
        if not _IS_OCCASION(occasion):
            occasion = ""
        made = _packet(head, number, body, signature, occasion, is_persistent=is_persistent)
        return head, number, made


def _header(headers: Mapping[str, str], name: str, is_fine: Callable[[str], object]) -> str:
    text = headers.get(name, "")
    if not is_fine(text):
        raise MessageError(f"the header {name} is {text[:80]!r}")
    return text


def _message(head: _Head, packets: list[Packet]) -> Message:
    """Return the message that the parts form."""
    body = packets[0].body if len(packets) == 1 else b"".join([each.body for each in packets])
    if _id(head.kind, head.sender, body) != head.id:
        raise MessageError("the id of a message is not that of what it says")
    facts, _, rest = body.partition(b"\n")
    if len(facts) > MAX_FACTS_BYTES or body.count(b"\n") > MAX_ITEMS:
        raise MessageError("a message has too many facts or items")
    try:
        given = _FACTS.decode(facts)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"the facts of a message are no object in JSON: {error}") from None
    items = [_item(line) for line in rest.split(b"\n")] if len(facts) < len(body) else []
    return Message(head.kind, head.sender, given, items, id=head.id, packets=packets)


renamed(
    __name__,
    MessageProblem="MessageError",
)
