"""The rules of CoilMQ."""

from __future__ import annotations

from typing import Final

from stompkit.testing.server.quirks._rules.rule import Rule

__all__ = ["RULES"]

_SEEN: Final = "CoilMQ 1.1.0, observed"

RULES: Final = (
    Rule(
        "nack-refused",
        "NACK is an error, and the state of the message does not change.",
        f"{_SEEN}; STOMP11.nack raises",
        "nack",
    ),
    Rule(
        "client-individual-is-auto",
        "The ack mode client-individual is treated as auto.",
        _SEEN,
    ),
    Rule(
        "ack-mode-of-connection",
        "The ack mode of the last SUBSCRIBE applies to all subscriptions of the connection."
        " Those to topics are always in the mode auto.",
        f"{_SEEN}; StompConnection.reliable_subscriber",
    ),
    Rule(
        "one-in-flight",
        "A subscription has at most one unacknowledged message, independent of its headers.",
        f"{_SEEN}; QueueManager._pending",
        "prefetch",
    ),
    Rule(
        "acks-by-subscription",
        "ACK has to name the subscription. On 1.0, it needs the id, which is 0 by default. On"
        " 1.2, it needs id and message-id, and MESSAGE has no ack header. ACK for a subscription"
        " that expects none is ignored.",
        f"{_SEEN}; STOMP10.ack, STOMP12.ack",
        "spent-ack",
    ),
    Rule(
        "subscriptions-by-id-and-destination",
        "A subscription is identified by id and destination. An identical SUBSCRIBE is ignored,"
        " and the same id with another destination creates another subscription. UNSUBSCRIBE"
        " needs both, and is ignored if there is no match. MESSAGE has a subscription header on"
        " 1.0, too; it is 0 without an id.",
        f"{_SEEN}; SubscriptionManager",
        "duplicate-id",
    ),
    Rule(
        "requeued-last",
        "Unacknowledged messages of a closed connection go to the end of their queue.",
        f"{_SEEN}; QueueManager.disconnect",
    ),
    Rule(
        "message-id-of-client",
        "MESSAGE has the message-id of its SEND, if there is one.",
        f"{_SEEN}; QueueManager.send",
        "message-id",
    ),
    Rule(
        "message-before-receipt",
        "Messages that a frame causes come before its RECEIPT.",
        f"{_SEEN}; StompEngine.process_frame",
    ),
    Rule(
        "receipt-twice",
        "A frame in a transaction gets its RECEIPT at once and again at COMMIT.",
        f"{_SEEN}; STOMP10.commit",
        "transaction-receipts",
    ),
    Rule(
        "content-length-always",
        "Every frame has a content-length, 0 without a body.",
        _SEEN,
    ),
    Rule(
        "heart-beat-least-100ms",
        "The first number that CONNECTED answers is the interval that the client requests, but"
        " at least 100 ms, also for 0. The second is the larger of this and the client's"
        " interval, or 100 if the client sends none. Without the header, CONNECTED has none. The"
        " broker never checks whether the client is alive.",
        f"{_SEEN}; STOMP11.connect",
        "heart-beat",
    ),
    Rule(
        "no-version-on-1.0",
        "CONNECTED has no version on 1.0.",
        _SEEN,
    ),
    Rule(
        "host-is-fqdn",
        "On 1.2, the host header of CONNECT has to be the full name of the machine. A fall-back"
        " to 1.1 is not possible, not even with another CONNECT.",
        f"{_SEEN}; STOMP12.connect",
        "host",
    ),
    Rule(
        "early-frame-closes",
        "A first frame that is not CONNECT is answered with ERROR. A frame after a failed"
        " CONNECT gets no answer. Both close the connection.",
        _SEEN,
    ),
    Rule(
        "accept-version-without-spaces",
        "An accept-version with a space is an error, and so is STOMP without the header.",
        f"{_SEEN}; coilmq.protocol.version",
        "accept-version",
    ),
    Rule(
        "coilmq-destinations",
        "A name that begins with /queue/ is a queue. Any other name is a topic. There are no"
        " wildcards.",
        f"{_SEEN}; StompEngine",
        "destinations",
    ),
    Rule(
        "eol-wedges",
        "After a line end between frames, the broker ignores all further data. The connection"
        " stays open. Heart-beats are such line ends, and many clients send one after NUL.",
        f"{_SEEN}; FrameBuffer",
    ),
    Rule(
        "split-frame-closes",
        "If the headers of a frame, or its body without content-length, are not within one read"
        " of 4096 bytes, the connection ends.",
        f"{_SEEN}; FrameBuffer",
    ),
    Rule(
        "content-length-not-checked",
        "The byte after the declared content-length is dropped, even if it is not NUL.",
        f"{_SEEN}; FrameBuffer",
    ),
    Rule(
        "second-colon-closes",
        "A header with a colon in its value closes the connection.",
        f"{_SEEN}; Frame.from_buffer splits at every colon",
    ),
    Rule(
        "lines-trimmed",
        "White space at the ends of header lines, including carriage returns, is dropped.",
        _SEEN,
    ),
    Rule(
        "header-last-wins",
        "The last value of a repeated header applies.",
        _SEEN,
    ),
    Rule(
        "no-escapes",
        "Headers are not escaped or unescaped on any version.",
        _SEEN,
    ),
)
