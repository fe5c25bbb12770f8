"""The rules of ActiveMQ Artemis."""

from __future__ import annotations

from typing import Final

from stompkit.testing.server.quirks._rules.rule import Rule

__all__ = ["RULES"]

_READ: Final = "Artemis 2.40.0, observed; 2.45 source"
_OBSERVED: Final = "Artemis 2.40.0, observed"

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
        "message-id-per-consumer",
        "message-id is CONSUMER,NUMBER, another one for each subscription that gets the message;"
        " the ack header of 1.2 is the same.",
        _OBSERVED,
        "message-id",
    ),
    Rule(
        "given-back-unmarked",
        "What UNSUBSCRIBE gives back is not marked as redelivered.",
        _OBSERVED,
    ),
    Rule(
        "unknown-transaction-begins",
        "SEND in a transaction that nobody began begins it; a BEGIN that follows is no error.",
        _OBSERVED,
    ),
    Rule(
        "subscribe-error-without-receipt-id",
        "ERROR for a SUBSCRIBE that can't be done does not say to which receipt it is the answer.",
        _OBSERVED,
    ),
    Rule(
        "header-last-wins-before-1.2",
        "Of a repeated header the last one counts, on 1.0 and 1.1.",
        _OBSERVED,
    ),
    Rule(
        "stomp-needs-1.1",
        "STOMP without a version in accept-version, or with 1.0, is an unknown command.",
        _OBSERVED,
    ),
    Rule(
        "error-stays-open-before-1.2",
        "An ERROR for a frame that can't be done leaves the connection open on 1.0 and 1.1, and"
        " closes it on 1.2.",
        _OBSERVED,
        "error",
    ),
    Rule(
        "nack-on-1.0-closes",
        "NACK on 1.0 is answered by ERROR and closes the connection.",
        _OBSERVED,
        "nack-on-1.0",
    ),
    Rule(
        "early-frame-wedges",
        "A first frame that is not CONNECT or STOMP makes the broker deaf for good: it does not"
        " look like STOMP.",
        _OBSERVED,
    ),
    Rule(
        "bad-content-length-wedges",
        "A content-length that is no number makes the broker deaf for good; the connection stays"
        " open.",
        _OBSERVED,
    ),
    Rule(
        "subscription-named-after-destination",
        "SUBSCRIBE needs no id on 1.1 and 1.2 either; MESSAGE has subscription:subscription/NAME"
        " then, with the name behind /queue/ or /topic/.",
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
        "Artemis 2.40.0, observed; manual, Routing Semantics, with anycastPrefix=/queue/ and"
        " multicastPrefix=/topic/ on the acceptor",
        "destinations",
    ),
)
