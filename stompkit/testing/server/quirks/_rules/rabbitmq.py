"""The rules of RabbitMQ."""

from __future__ import annotations

from typing import Final

from stompkit.testing.server.quirks._rules.rule import Rule

__all__ = ["RULES"]

_SEEN: Final = "RabbitMQ 3.10.8, observed"

RULES: Final = (
    Rule(
        "nack-requeues",
        "NACK requeues, and without end: whoever says it again and again gets the message again"
        " and again. With the header requeue:false it drops the message.",
        f"{_SEEN}; rabbit_stomp_processor:create_nack_method, default_nack_requeue",
        "nack",
    ),
    Rule(
        "nack-on-1.0",
        "NACK is taken on 1.0 as well.",
        f"{_SEEN}; rabbit_stomp_processor:handle_frame",
        "nack-on-1.0",
    ),
    Rule(
        "ack-across-subscriptions",
        "ACK and NACK in the mode client settle all that was delivered before on the connection,"
        " of other subscriptions, too, whatever their mode.",
        f"{_SEEN}; rabbit_stomp_processor:create_ack_method sets multiple for the channel",
    ),
    Rule(
        "spent-ack-closes",
        "ACK of a message that is settled already is answered by its RECEIPT, then by ERROR, and"
        " the connection is closed.",
        f"{_SEEN}: PRECONDITION_FAILED of the AMQP channel",
        "spent-ack",
    ),
    Rule(
        "late-ack-refused",
        "ACK after UNSUBSCRIBE is an error, and its message stays the connection's.",
        f"{_SEEN}; rabbit_stomp_processor:ack_action",
        "late-ack",
    ),
    Rule(
        "message-id-per-delivery",
        "Each delivery has a message-id of its own, T_ID@@SESSION@@NUMBER, which 1.2 also has in"
        " ack; a redelivered message has another one than before.",
        f"{_SEEN}; rabbit_stomp_util:create_message_id",
        "message-id",
    ),
    Rule(
        "transaction-holds-prefetch",
        "What an open transaction has acknowledged counts for the prefetch until COMMIT.",
        f"{_SEEN}; rabbit_stomp_processor keeps the frames of a transaction until COMMIT",
    ),
    Rule(
        "message-id-on-send-refused",
        "SEND with a header message-id is an error.",
        f"{_SEEN}; rabbit_stomp_processor:without_headers",
    ),
    Rule(
        "receipt-order",
        "The RECEIPT of SEND comes after those of frames that came in one go behind it.",
        f"{_SEEN}; receipts of SEND wait for publisher confirms:"
        " rabbit_stomp_processor:maybe_record_receipt",
    ),
    Rule(
        "transaction-receipts-late",
        "The RECEIPT of SEND in a transaction comes after that of its COMMIT; after ABORT it never"
        " comes.",
        f"{_SEEN}; rabbit_stomp_processor:commit_transaction",
        "transaction-receipts",
    ),
    Rule(
        "prefetch-count",
        "Only prefetch-count says how many messages may be unacknowledged, and goes for later"
        " subscriptions of the connection, too; without one there is no limit.",
        f"{_SEEN}; basic.qos in rabbit_stomp_processor:do_subscribe",
        "prefetch",
    ),
    Rule(
        "heart-beat-whole-seconds",
        "The client's heart-beat is rounded down to whole seconds, but not below one, and given"
        " back so, on 1.0 too.",
        f"{_SEEN}; rabbit_stomp_processor:millis_to_seconds",
        "heart-beat",
    ),
    Rule(
        "duplicate-id-closes",
        "A second SUBSCRIBE with the same id is answered by ERROR, then by its RECEIPT, and the"
        " connection is closed.",
        f"{_SEEN}; rabbit_stomp_processor:do_subscribe",
        "duplicate-id",
    ),
    Rule(
        "id-not-needed",
        "SUBSCRIBE needs no id on 1.1 and 1.2 either; MESSAGE lacks its subscription header then.",
        f"{_SEEN}; rabbit_stomp_util:consumer_tag",
        "subscription-id",
    ),
    Rule(
        "host-is-vhost",
        "The host header of CONNECT has to be a virtual host, and there is none but / unless hosts"
        " are configured.",
        f"{_SEEN}; rabbit_stomp_processor:do_login",
        "host",
    ),
    Rule(
        "version-error-stays-open",
        "A CONNECT without a version in common leaves the connection open for another try.",
        f"{_SEEN}; rabbit_stomp_processor:process_connect",
    ),
    Rule(
        "error-with-versions",
        "Every ERROR has a version header.",
        f"{_SEEN}; rabbit_stomp_processor:send_error_frame",
    ),
    Rule(
        "second-connect-closes",
        "A CONNECT of a client that is connected closes the connection without ERROR.",
        f"{_SEEN}: the process of the connection crashes",
        "second-connect",
    ),
    Rule(
        "queue-properties",
        "The first frame that names a queue makes it as its headers durable or persistent,"
        " auto-delete, exclusive and x-... say; one of another connection with others ends that"
        " connection with an ERROR. With durable:false or persistent:false it is the connection's"
        " own, and ends with it.",
        f"{_SEEN}: PRECONDITION_FAILED and RESOURCE_LOCKED; rabbit_stomp_util:build_params",
    ),
    Rule(
        "rabbitmq-destinations",
        "A name without a slash is a queue, whose name MESSAGE gives with /queue/ in front; no"
        " other slash may be in a name; /exchange/, /amq/queue/ and /reply-queue/ are understood.",
        f"{_SEEN}; rabbit_routing_util:parse_endpoint",
        "destinations",
    ),
)
