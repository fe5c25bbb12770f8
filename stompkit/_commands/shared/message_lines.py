"""Messages as lines of JSON, which ``receive --json`` prints and ``send --jsonl`` reads."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from stompkit._common.text import json_line

__all__ = ["Outgoing", "from_line", "to_line", "without_delivery"]

#: Headers of MESSAGE that describe the delivery, not the message.
_OF_DELIVERY: Final = frozenset(
    {
        "ack",
        "content-length",
        "delivery-count",
        "destination",
        "message-id",
        "receipt",
        "redelivered",
        "subscription",
        "transaction",
    }
)
#: Permitted members of a line; the last ones come from `stompkit peek`.
_MEMBERS: Final = frozenset(
    {"destination", "headers", "body", "body_base64", "state", "deliveries", "is_truncated"}
)


class Outgoing(NamedTuple):
    """A message to send; an empty destination means that of the command line."""

    destination: str
    headers: Mapping[str, str]
    body: bytes


def without_delivery(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of MESSAGE for a SEND of the same message."""
    return {
        name: value
        for name, value in headers.items()
        # ActiveMQ marks messages that never expire with a time long past.
        if name not in _OF_DELIVERY and (name, value) != ("expires", "0")
    }


def to_line(headers: Mapping[str, str], body: bytes) -> str:
    """Return a message in one line: destination, headers, and body as text or base64."""
    document: dict[str, object] = {
        "destination": headers.get("destination", ""),
        "headers": dict(headers),
    }
    try:
        document["body"] = body.decode("utf-8")
    except UnicodeDecodeError:
        document["body_base64"] = base64.b64encode(body).decode("ascii")
    return json_line(document)


def from_line(line: bytes) -> Outgoing:
    """Parse a message to send; raises ``ValueError`` that says what is wrong."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError('a message is an object, such as {"body": "text"}')
    if document.get("is_truncated"):
        raise ValueError("this message was cut: the rest of its body is missing")
    unknown = document.keys() - _MEMBERS
    if unknown:
        raise ValueError(
            f"a message has destination, headers, and body or body_base64, not {min(unknown)!r}"
        )
    destination, headers = document.get("destination", ""), document.get("headers", {})
    if not isinstance(destination, str):
        raise ValueError("destination has to be a text")
    if not isinstance(headers, dict) or not all(isinstance(v, str) for v in headers.values()):
        raise ValueError("headers have to be an object with texts")
    return Outgoing(destination, without_delivery(headers), _body(document))


def _body(document: Mapping[str, object]) -> bytes:
    if "body" in document and "body_base64" in document:
        raise ValueError("there is body or body_base64, not both")
    if "body_base64" in document:
        encoded = document["body_base64"]
        try:
            return base64.b64decode(encoded, validate=True)  # type: ignore[arg-type]
        except (binascii.Error, ValueError, TypeError):
            raise ValueError("body_base64 has to be base64") from None
    body = document.get("body", "")
    if not isinstance(body, str):
        raise ValueError("body has to be a text; what is none goes into body_base64")
    return body.encode("utf-8", "surrogateescape")
