"""The rules of RabbitMQ."""

from __future__ import annotations

from typing import Final

from stompkit.testing.server.quirks._rules.rule import Rule

__all__ = ["RULES"]

_SEEN: Final = "RabbitMQ 3.10.8, observed"

RULES: Final = (
    Rule(
        "nack-requeues",
        "NACK requeues the message without limit: a client that refuses it repeatedly gets it"
        " repeatedly. With the header requeue:false, NACK drops the message.",
        f"{_SEEN}; rabbit_stomp_processor:create_nack_method, default_nack_requeue",
        "nack",
    ),
    Rule(
        "nack-on-1.0",
        "NACK is accepted on 1.0 as well.",
        f"{_SEEN}; rabbit_stomp_processor:handle_frame",
        "nack-on-1.0",
    ),
    Rule(
        "ack-across-subscriptions",
        "ACK and NACK in the mode client settle all earlier deliveries of the connection,"
        " including those of other subscriptions in any mode.",
        f"{_SEEN}; rabbit_stomp_processor:create_ack_method sets multiple for the channel",
    ),
    Rule(
        "spent-ack-closes",
        "ACK of a settled message is answered with its RECEIPT, then with ERROR, and the"
        " connection is closed.",
        f"{_SEEN}: PRECONDITION_FAILED of the AMQP channel",
        "spent-ack",
    ),
    Rule(
        "late-ack-refused",
        "ACK after UNSUBSCRIBE is an error, and its message stays with the connection.",
        f"{_SEEN}; rabbit_stomp_processor:ack_action",
        "late-ack",
    ),
    Rule(
        "message-id-per-delivery",
        "Each delivery has a separate message-id, T_ID@@SESSION@@NUMBER, which 1.2 also has in"
        " ack. A redelivered message gets another message-id.",
        f"{_SEEN}; rabbit_stomp_util:create_message_id",
        "message-id",
    ),
    Rule(
        "transaction-holds-prefetch",
        "Messages acknowledged in an open transaction count against the prefetch until COMMIT.",
        f"{_SEEN}; rabbit_stomp_processor keeps the frames of a transaction until COMMIT",
    ),
    Rule(
        "message-id-on-send-refused",
        "SEND with a header message-id is an error.",
        f"{_SEEN}; rabbit_stomp_processor:without_headers",
    ),
    Rule(
        "receipt-order",
        "The RECEIPT of SEND comes after those of later frames that arrived in the same read.",
        f"{_SEEN}; receipts of SEND wait for publisher confirms:"
        " rabbit_stomp_processor:maybe_record_receipt",
    ),
    Rule(
        "transaction-receipts-late",
        "The RECEIPT of SEND in a transaction comes after that of its COMMIT. After ABORT it"
        " never comes.",
        f"{_SEEN}; rabbit_stomp_processor:commit_transaction",
        "transaction-receipts",
    ),
    Rule(
        "prefetch-count",
        "Only prefetch-count limits the unacknowledged messages, and it also applies to later"
        " subscriptions of the connection. By default there is no limit.",
        f"{_SEEN}; basic.qos in rabbit_stomp_processor:do_subscribe",
        "prefetch",
    ),
    Rule(
        "heart-beat-whole-seconds",
        "The client's heart-beat is rounded down to whole seconds, but at least one second, and"
        " returned in this form, also on 1.0.",
        f"{_SEEN}; rabbit_stomp_processor:millis_to_seconds",
        "heart-beat",
    ),
    Rule(
        "duplicate-id-closes",
        "A second SUBSCRIBE with the same id is answered with ERROR, then with its RECEIPT, and"
        " the connection is closed.",
        f"{_SEEN}; rabbit_stomp_processor:do_subscribe",
        "duplicate-id",
    ),
    Rule(
        "id-not-needed",
        "SUBSCRIBE needs no id, on 1.1 and 1.2 as well. MESSAGE then lacks its subscription"
        " header.",
        f"{_SEEN}; rabbit_stomp_util:consumer_tag",
        "subscription-id",
    ),
    Rule(
        "host-is-vhost",
        "The host header of CONNECT has to be a virtual host. Only / exists unless hosts are"
        " configured.",
        f"{_SEEN}; rabbit_stomp_processor:do_login",
        "host",
    ),
    Rule(
        "version-error-stays-open",
        "A CONNECT without a common version leaves the connection open for another attempt.",
        f"{_SEEN}; rabbit_stomp_processor:process_connect",
    ),
    Rule(
        "error-with-versions",
        "Every ERROR has a version header.",
        f"{_SEEN}; rabbit_stomp_processor:send_error_frame",
    ),
    Rule(
        "second-connect-closes",
        "A CONNECT on an open session closes the connection without ERROR.",
        f"{_SEEN}: the process of the connection crashes",
        "second-connect",
    ),
    Rule(
        "queue-properties",
        "The first frame that names a queue creates it with the properties in its headers:"
        " durable or persistent, auto-delete, exclusive and x-... An ERROR ends another"
        " connection that uses different properties. With durable:false or persistent:false, the"
        " queue belongs to the connection and ends with it.",
        f"{_SEEN}: PRECONDITION_FAILED and RESOURCE_LOCKED; rabbit_stomp_util:build_params",
    ),
    Rule(
        "rabbitmq-destinations",
        "A name without a slash is a queue, and MESSAGE adds /queue/ to its name. Names must not"
        " contain other slashes. /exchange/, /amq/queue/ and /reply-queue/ are understood.",
        f"{_SEEN}; rabbit_routing_util:parse_endpoint",
        "destinations",
    ),
)
