"""The rules of ActiveMQ (Classic)."""

from __future__ import annotations

from typing import Final

from stompkit.testing.server.quirks._rules.rule import Rule

__all__ = ["RULES"]

_SEEN: Final = "ActiveMQ 5.17.2, observed"

RULES: Final = (
    Rule(
        "nack-dead-letters",
        "NACK moves a persistent message to /queue/ActiveMQ.DLQ at once and drops any other"
        " message.",
        f"{_SEEN}; StompSubscription.onStompMessageNack sends a poison acknowledgement",
        "nack",
    ),
    Rule(
        "nack-names-one",
        "NACK in the mode client refuses only the named message, not the messages before it.",
        f"{_SEEN}; StompSubscription.onStompMessageNack",
    ),
    Rule(
        "prefetch-size",
        "Only activemq.prefetchSize limits the unacknowledged messages. The default is 1000."
        " With 0, no messages are delivered, even in the mode auto. A value that is not a number"
        " is ignored.",
        f"{_SEEN}; ActiveMQPrefetchPolicy, ProtocolConverter.onStompSubscribe",
        "prefetch",
    ),
    Rule(
        "heart-beat-mirrored",
        "CONNECTED returns the numbers of the client's heart-beat unchanged, also on 1.0.",
        f"{_SEEN}; ProtocolConverter.configureInactivityMonitor",
        "heart-beat",
    ),
    Rule(
        "duplicate-id-accepted",
        "A second SUBSCRIBE with the same id creates another subscription. UNSUBSCRIBE ends the"
        " later one; the first one cannot be ended.",
        f"{_SEEN}; ProtocolConverter.onStompSubscribe",
        "duplicate-id",
    ),
    Rule(
        "message-id-with-colons",
        "The message-id and the ack header contain colons, which 1.1 and 1.2 escape.",
        f"{_SEEN}; MessageId.toString",
        "message-id",
    ),
    Rule(
        "strange-ack-closes",
        "ACK or NACK on 1.0 or 1.1 closes the connection without an ERROR if ActiveMQ could not"
        " have generated its message-id.",
        f"{_SEEN}: MessageId.setValue throws an uncaught exception",
    ),
    Rule(
        "content-length-not-added",
        "MESSAGE has a content-length only if SEND had one.",
        f"{_SEEN}; LegacyFrameTranslator takes it for the mark of a BytesMessage",
    ),
    Rule(
        "undefined-escape-kept",
        "A backslash that begins no known escape sequence is an ordinary character.",
        f"{_SEEN}; StompWireFormat.decodeHeader",
    ),
    Rule(
        "error-stack-trace",
        "The body of ERROR is a Java stack trace.",
        f"{_SEEN}; ProtocolConverter.handleException",
    ),
    Rule(
        "activemq-destinations",
        "A destination without a known prefix is a queue, and MESSAGE adds /queue/ to its name."
        " queue:// and similar prefixes are understood.",
        f"{_SEEN}; FrameTranslator.Helper, ActiveMQDestination.createDestination",
        "destinations",
    ),
)
