"""The rules of ActiveMQ Artemis."""

from __future__ import annotations

from typing import Final

from stompkit.testing.server.quirks._rules.rule import Rule

__all__ = ["RULES"]

_READ: Final = "Artemis 2.45 source"

RULES: Final = (
    Rule(
        "nack-is-ack",
        "NACK is ACK: the message is gone, and nobody gets it again.",
        f"{_READ}: StompFrameHandlerV11.onNack calls onAck",
        "nack",
    ),
    Rule(
        "ack-in-transaction-at-once",
        "The transaction header of ACK and NACK is ignored: they take effect at once, and ABORT"
        " does not take them back.",
        f"{_READ}: StompFrameHandlerV12.onAck; manual, Transactional Acknowledgements",
    ),
    Rule(
        "prefetch-in-bytes",
        "consumer-window-size or activemq.prefetchSize says how many octets may be unacknowledged,"
        " 10240 without it and any number at -1. In the mode auto they are used up for good: at 1"
        " there is one message and no other.",
        f"{_READ}: StompSession.addSubscription, sendMessage, acknowledge; manual, Flow Control",
        "prefetch",
    ),
    Rule(
        "subscription-named-after-destination",
        "SUBSCRIBE needs no id on 1.1 and 1.2 either; MESSAGE has subscription:subscription/NAME"
        " then.",
        f"{_READ}: StompConnection.subscribe",
        "subscription-id",
    ),
    Rule(
        "unknown-ack-mode-is-client",
        "An ack mode that there is not is taken for client.",
        f"{_READ}: StompSession.acknowledge",
        "unknown-ack-mode",
    ),
    Rule(
        "heart-beat-least-500ms",
        "CONNECTED answers heart-beat with what the client wants, but not below 500 ms, and with"
        " what it can, or 30000 where it can't; without the header it has none.",
        f"{_READ}: StompFrameHandlerV11.HeartBeater",
        "heart-beat",
    ),
    Rule(
        "silence-of-60s",
        "A client that has not promised heart-beats is closed with an ERROR after 60 seconds of"
        " silence, on 1.0 too.",
        f"{_READ}: StompProtocolManager.createConnectionEntry; manual, connection-ttl",
    ),
    Rule(
        "artemis-destinations",
        "A name without prefix is a queue or, with destination-type:MULTICAST on SEND or"
        " subscription-type:MULTICAST on SUBSCRIBE, a topic.",
        "Artemis 2.45 manual, Routing Semantics, with anycastPrefix=/queue/ and"
        " multicastPrefix=/topic/ on the acceptor",
        "destinations",
    ),
)
