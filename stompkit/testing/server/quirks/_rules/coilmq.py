"""The rules of CoilMQ."""

from __future__ import annotations

from typing import Final

from stompkit.testing.server.quirks._rules.rule import Rule

__all__ = ["RULES"]

_SEEN: Final = "CoilMQ 1.1.0, observed"

RULES: Final = (
    Rule(
        "nack-refused",
        "NACK is an error, and the message stays where it is.",
        f"{_SEEN}; STOMP11.nack raises",
        "nack",
    ),
    Rule(
        "client-individual-is-auto",
        "The ack mode client-individual is taken for auto.",
        _SEEN,
    ),
    Rule(
        "ack-mode-of-connection",
        "The ack mode of the last SUBSCRIBE goes for all subscriptions of the connection; those to"
        " topics are in the mode auto in any case.",
        f"{_SEEN}; StompConnection.reliable_subscriber",
    ),
    Rule(
        "one-in-flight",
        "A subscription has one unacknowledged message at a time, whatever its headers ask for.",
        f"{_SEEN}; QueueManager._pending",
        "prefetch",
    ),
    Rule(
        "acks-by-subscription",
        "ACK has to name the subscription: by id on 1.0, where it is 0 if nothing else was said,"
        " and by id beside message-id on 1.2, whose MESSAGE has no ack header. Of a subscription"
        " that waits for none it is taken without a word.",
        f"{_SEEN}; STOMP10.ack, STOMP12.ack",
        "spent-ack",
    ),
    Rule(
        "subscriptions-by-id-and-destination",
        "A subscription is known by its id and its destination: the same again is ignored, the same"
        " id with another destination is one more, and UNSUBSCRIBE needs both, and ignores what"
        " there is not. MESSAGE has a subscription header on 1.0, too, and 0 where there is no id.",
        f"{_SEEN}; SubscriptionManager",
        "duplicate-id",
    ),
    Rule(
        "requeued-last",
        "What a connection that ends has not acknowledged goes to the end of its queue.",
        f"{_SEEN}; QueueManager.disconnect",
    ),
    Rule(
        "message-id-of-client",
        "A message-id of the SEND is that of its MESSAGE.",
        f"{_SEEN}; QueueManager.send",
        "message-id",
    ),
    Rule(
        "message-before-receipt",
        "The messages that a frame brings about come before its RECEIPT.",
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
        "Every frame has a content-length, 0 where there is no body.",
        _SEEN,
    ),
    Rule(
        "heart-beat-least-100ms",
        "CONNECTED answers heart-beat with what the client wants, but not below 100 ms, also for"
        " 0, and with the greater of the client's numbers, or 100; without the header it has none."
        " Nobody looks whether the client is still there.",
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
        "On 1.2 the host header of CONNECT has to be the full name of the machine; there is no"
        " falling back to 1.1, not by another CONNECT either.",
        f"{_SEEN}; STOMP12.connect",
        "host",
    ),
    Rule(
        "early-frame-closes",
        "A first frame that is not CONNECT is answered by ERROR, and one after a CONNECT that has"
        " failed by nothing; both close the connection.",
        _SEEN,
    ),
    Rule(
        "accept-version-without-spaces",
        "An accept-version with a space is an error, as is STOMP without the header.",
        f"{_SEEN}; coilmq.protocol.version",
        "accept-version",
    ),
    Rule(
        "coilmq-destinations",
        "What begins with /queue/ is a queue and any other name a topic; there are no wildcards.",
        f"{_SEEN}; StompEngine",
        "destinations",
    ),
    Rule(
        "eol-wedges",
        "An end of line between frames, which a heart-beat is, and which many clients send after"
        " NUL, makes the broker deaf for good; the connection stays open.",
        f"{_SEEN}; FrameBuffer",
    ),
    Rule(
        "split-frame-closes",
        "A frame whose head, or whose body without content-length, is not in one read of 4096"
        " octets ends the connection.",
        f"{_SEEN}; FrameBuffer",
    ),
    Rule(
        "content-length-not-checked",
        "The octet behind the body that content-length declares is dropped, whatever it is.",
        f"{_SEEN}; FrameBuffer",
    ),
    Rule(
        "second-colon-closes",
        "A header with a colon in its value ends the connection.",
        f"{_SEEN}; Frame.from_buffer splits at every colon",
    ),
    Rule(
        "lines-trimmed",
        "White space at the ends of header lines, carriage returns among it, is dropped.",
        _SEEN,
    ),
    Rule(
        "header-last-wins",
        "Of a repeated header the last one counts.",
        _SEEN,
    ),
    Rule(
        "no-escapes",
        "Headers are neither escaped nor unescaped, on no version.",
        _SEEN,
    ),
)
