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
        "NACK has the effect of ACK: the message is removed and not redelivered.",
        f"{_READ}: StompFrameHandlerV11.onNack calls onAck",
        "nack",
    ),
    Rule(
        "ack-in-transaction-at-once",
        "The transaction header of ACK and NACK is ignored. They take effect at once, and ABORT"
        " does not revert them.",
        f"{_READ}: StompFrameHandlerV12.onAck; manual, Transactional Acknowledgements",
    ),
    Rule(
        "prefetch-in-bytes",
        "consumer-window-size or activemq.prefetchSize limits the unacknowledged bytes. The"
        " default is 10240, and -1 means no limit. In the mode auto, such a window is never"
        " replenished: with 1, only one message is delivered.",
        f"{_READ}: StompSession.addSubscription, sendMessage, acknowledge; manual, Flow Control",
        "prefetch",
    ),
    Rule(
        "message-id-per-consumer",
        "message-id is CONSUMER,NUMBER. It differs in each subscription that gets the message."
        " The ack header of 1.2 is the same.",
        _OBSERVED,
        "message-id",
    ),
    Rule(
        "given-back-unmarked",
        "Messages that UNSUBSCRIBE returns are not marked as redelivered.",
        _OBSERVED,
    ),
    Rule(
        "unknown-transaction-begins",
        "SEND in an unknown transaction begins it. A BEGIN that follows is not an error.",
        _OBSERVED,
    ),
    Rule(
        "subscribe-error-without-receipt-id",
        "An ERROR for a SUBSCRIBE that cannot be processed has no receipt-id.",
        _OBSERVED,
    ),
    Rule(
        "header-last-wins-before-1.2",
        "The last value of a repeated header applies, on 1.0 and 1.1.",
        _OBSERVED,
    ),
    Rule(
        "stomp-needs-1.1",
        "STOMP without a version in accept-version, or with 1.0, is an unknown command.",
        _OBSERVED,
    ),
    Rule(
        "error-stays-open-before-1.2",
        "An ERROR for a frame that cannot be processed leaves the connection open on 1.0 and"
        " 1.1, and closes it on 1.2.",
        _OBSERVED,
        "error",
    ),
    Rule(
        "nack-on-1.0-closes",
        "NACK on 1.0 is answered with ERROR and closes the connection.",
        _OBSERVED,
        "nack-on-1.0",
    ),
    Rule(
        "early-frame-wedges",
        "If the first frame is not CONNECT or STOMP, the broker does not recognise STOMP and"
        " ignores all further data of the connection.",
        _OBSERVED,
    ),
    Rule(
        "bad-content-length-wedges",
        "After a content-length that is not a number, the broker ignores all further data. The"
        " connection stays open.",
        _OBSERVED,
    ),
    Rule(
        "subscription-named-after-destination",
        "SUBSCRIBE needs no id, on 1.1 and 1.2 as well. MESSAGE then has"
        " subscription:subscription/NAME, with the name after /queue/ or /topic/.",
        f"{_READ}: StompConnection.subscribe",
        "subscription-id",
    ),
    Rule(
        "unknown-ack-mode-is-client",
        "An unknown ack mode is treated as client.",
        f"{_READ}: StompSession.acknowledge",
        "unknown-ack-mode",
    ),
    Rule(
        "heart-beat-least-500ms",
        "CONNECTED answers heart-beat with the intervals of the client, raised to at least 500"
        " ms. If the client sends no heart-beats, the second number is 30000. Without the header,"
        " CONNECTED has none.",
        f"{_READ}: StompFrameHandlerV11.HeartBeater",
        "heart-beat",
    ),
    Rule(
        "silence-of-60s",
        "A client that has not promised heart-beats is disconnected with an ERROR after 60"
        " seconds of silence, also on 1.0.",
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
