"""Conversion between kombu's messages and frames.

The body is the frame's body, so that programs without kombu can read and write it. Properties
with a STOMP header use that header. Application headers and other properties are JSON, each in
one header.
"""

from __future__ import annotations

from time import time
from typing import Any, Final

from kombu.utils.json import dumps, loads

from stompkit.frames import Frame
from stompkit.kombu._brokers import Broker

__all__ = [
    "copy_of",
    "is_persistent",
    "is_redelivered",
    "payload_of",
    "route_of",
    "send_frame",
]

_HEADER: Final = "kombu-header-"
_PROPERTY: Final = "kombu-property-"
#: Properties that have STOMP headers, or that the receiver does not need.
_ELSEWHERE: Final = frozenset({"delivery_info", "delivery_tag", "body_encoding"})
_EXCHANGE, _ROUTING_KEY = "kombu-exchange", "kombu-routing-key"
#: Set on a copy, because ActiveMQ overwrites ``redelivered``.
_REDELIVERED: Final = "kombu-redelivered"
_DEFAULT_PRIORITY: Final = 0
#: Headers of MESSAGE that describe the delivery, not the message.
_OF_DELIVERY: Final = frozenset(
    {
        "destination",
        "message-id",
        "subscription",
        "ack",
        "content-length",
        "content-type",
        "content-encoding",
        "receipt",
        "transaction",
        "persistent",
        "priority",
        "expires",
        "expiration",
        "timestamp",
        "redelivered",
        "delivery-count",
        _EXCHANGE,
        _ROUTING_KEY,
        _REDELIVERED,
    }
)


def send_frame(destination: str, message: dict[str, Any], broker: Broker) -> Frame:
    """Return the SEND frame for a message from ``Channel.prepare_message``."""
    properties: dict[str, Any] = message["properties"]
    info: dict[str, Any] = properties.get("delivery_info") or {}
    headers = {"destination": destination}
    if message.get("content-type"):
        headers["content-type"] = str(message["content-type"])
    if message.get("content-encoding"):
        headers["content-encoding"] = str(message["content-encoding"])
    if is_persistent(message):
        # Brokers treat a message without the header as transient. With "false", RabbitMQ would
        # declare a queue that is exclusive to the sender.
        headers["persistent"] = "true"
    headers["priority"] = str(properties.get("priority") or _DEFAULT_PRIORITY)
    headers[_EXCHANGE] = str(info.get("exchange") or "")
    headers[_ROUTING_KEY] = str(info.get("routing_key") or "")
    if properties.get("expiration"):
        left_ms = int(properties["expiration"])
        if broker.expires_by_clock:
            headers["expires"] = str(int(time() * 1000) + left_ms)
        else:
            headers["expiration"] = str(left_ms)
    for name, value in properties.items():
        if name not in _ELSEWHERE and value is not None:
            headers[_PROPERTY + name] = _json(value)
    for name, value in (message.get("headers") or {}).items():
        headers[_HEADER + str(name)] = _json(value)
    body = message["body"]
    return Frame("SEND", headers, body.encode() if isinstance(body, str) else bytes(body or b""))


def is_persistent(message: dict[str, Any]) -> bool:
    """Return True if a message must survive a restart of the broker."""
    return str(message["properties"].get("delivery_mode", 2)) == "2"


def payload_of(frame: Frame, queue: str, tag: str) -> dict[str, Any]:
    """Return a MESSAGE in the form of kombu's virtual channels.

    A frame that was not sent by kombu gives its own headers as application headers.
    """
    given = frame.headers
    headers: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    for name, value in given.items():
        if name.startswith(_HEADER):
            headers[name[len(_HEADER) :]] = _value(value)
        elif name.startswith(_PROPERTY):
            properties[name[len(_PROPERTY) :]] = _value(value)
        elif name not in _OF_DELIVERY and _EXCHANGE not in given:
            headers[name] = value
    content_type = given.get("content-type", "application/octet-stream")
    content_type = content_type.partition(";")[0].strip()
    is_text = content_type.startswith("text/") or content_type == "application/json"
    properties["delivery_tag"] = tag
    properties["delivery_info"] = {
        "exchange": given.get(_EXCHANGE, ""),
        "routing_key": given.get(_ROUTING_KEY, queue),
        "redelivered": is_redelivered(frame),
    }
    return {
        "body": frame.body,
        "content-type": content_type,
        "content-encoding": given.get("content-encoding", "utf-8" if is_text else "binary"),
        "headers": headers,
        "properties": properties,
    }


def is_redelivered(frame: Frame) -> bool:
    """Return True if the broker, or the sender of a copy, marks the message as redelivered."""
    return "true" in (frame.headers.get("redelivered"), frame.headers.get(_REDELIVERED))


def route_of(frame: Frame) -> tuple[str, str]:
    """Return the exchange and the routing key that a message was published with."""
    return frame.headers.get(_EXCHANGE, ""), frame.headers.get(_ROUTING_KEY, "")


def copy_of(frame: Frame) -> Frame:
    """Return a SEND frame that requeues a message at a broker whose NACK does not."""
    dropped = {"message-id", "subscription", "ack", "timestamp", "redelivered", "content-length"}
    headers = {name: value for name, value in frame.headers.items() if name not in dropped}
    return Frame("SEND", {**headers, _REDELIVERED: "true"}, frame.body)


def _json(value: object) -> str:
    text: str = dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates, which UTF-8 cannot encode
        text = dumps(value)
    return text


def _value(text: str) -> Any:
    """Return the JSON value of a header; text that is not JSON is returned unchanged."""
    try:
        return loads(text)
    except ValueError:
        return text
