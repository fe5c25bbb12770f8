"""The rules of ActiveMQ (Classic)."""

from __future__ import annotations

from typing import Final

from stompkit.testing.server.quirks._rules.rule import Rule

__all__ = ["RULES"]

_SEEN: Final = "ActiveMQ 5.17.2, observed"

RULES: Final = (
    Rule(
        "nack-dead-letters",
        "NACK moves a persistent message to /queue/ActiveMQ.DLQ at once and drops any other.",
        f"{_SEEN}; StompSubscription.onStompMessageNack sends a poison acknowledgement",
        "nack",
    ),
    Rule(
        "nack-names-one",
        "NACK in the mode client speaks of the named message only, not of those before it.",
        f"{_SEEN}; StompSubscription.onStompMessageNack",
    ),
    Rule(
        "prefetch-size",
        "Only activemq.prefetchSize says how many messages may be unacknowledged: 1000 without it,"
        " none are delivered at 0, in the mode auto either; what is no number is ignored.",
        f"{_SEEN}; ActiveMQPrefetchPolicy, ProtocolConverter.onStompSubscribe",
        "prefetch",
    ),
    Rule(
        "heart-beat-mirrored",
        "CONNECTED gives the numbers of the client's heart-beat back, whatever they are, on 1.0"
        " too.",
        f"{_SEEN}; ProtocolConverter.configureInactivityMonitor",
        "heart-beat",
    ),
    Rule(
        "duplicate-id-accepted",
        "A second SUBSCRIBE with the same id makes another subscription; UNSUBSCRIBE ends the"
        " later one, and nothing the first.",
        f"{_SEEN}; ProtocolConverter.onStompSubscribe",
        "duplicate-id",
    ),
    Rule(
        "message-id-with-colons",
        "The message-id and the ack header have colons in them, which 1.1 and 1.2 escape.",
        f"{_SEEN}; MessageId.toString",
        "message-id",
    ),
    Rule(
        "strange-ack-closes",
        "ACK or NACK on 1.0 or 1.1 whose message-id is none that ActiveMQ could have given out"
        " closes the connection without an ERROR.",
        f"{_SEEN}: MessageId.setValue throws what nobody catches",
    ),
    Rule(
        "content-length-not-added",
        "MESSAGE has a content-length only where SEND had one.",
        f"{_SEEN}; LegacyFrameTranslator takes it for the mark of a BytesMessage",
    ),
    Rule(
        "undefined-escape-kept",
        "A backslash that begins no known escape sequence stands for itself.",
        f"{_SEEN}; StompWireFormat.decodeHeader",
    ),
    Rule(
        "error-stack-trace",
        "The body of ERROR is a stack trace of Java.",
        f"{_SEEN}; ProtocolConverter.handleException",
    ),
    Rule(
        "activemq-destinations",
        "A destination without a known prefix is a queue, whose name MESSAGE gives with /queue/ in"
        " front, and queue:// and the like are understood.",
        f"{_SEEN}; FrameTranslator.Helper, ActiveMQDestination.createDestination",
        "destinations",
    ),
)
