"""The rules that several brokers have."""

from __future__ import annotations

from typing import Final

from stompkit.testing.server.quirks._rules.rule import Rule

__all__ = ["RULES"]

RULES: Final = (
    Rule(
        "error-stays-open",
        "An ERROR for a frame that cannot be processed leaves the connection open.",
        "ActiveMQ 5.17.2, RabbitMQ 3.10.8 and CoilMQ 1.1.0, observed",
        "error",
    ),
    Rule(
        "failed-connect-stays-open",
        "A CONNECT that is refused for its login, host or heart-beat leaves the connection open"
        " for another attempt.",
        "RabbitMQ 3.10.8 and CoilMQ 1.1.0, observed",
    ),
    Rule(
        "malformed-closes-silently",
        "Bytes that are not a frame close the connection without an ERROR.",
        "RabbitMQ 3.10.8 and CoilMQ 1.1.0, observed",
    ),
    Rule(
        "timeouts-close-silently",
        "A client that has been silent for too long is disconnected without an ERROR.",
        "ActiveMQ 5.17.2 and RabbitMQ 3.10.8, observed",
    ),
    Rule(
        "silent-client-two-checks",
        "The broker checks for data of the client once in each heart-beat interval. It closes"
        " the connection when two consecutive checks fail, after two to three intervals.",
        "ActiveMQ 5.17.2 and RabbitMQ 3.10.8, observed",
    ),
    Rule(
        "error-without-receipt-id",
        "ERROR has no receipt-id.",
        "RabbitMQ 3.10.8 and CoilMQ 1.1.0, observed; Spring 7.1 source:"
        " StompSubProtocolHandler.sendErrorMessage",
    ),
    Rule(
        "spaces-hide-versions",
        'A version after a space in accept-version is ignored: "1.0, 1.1" offers 1.0 only.',
        "ActiveMQ 5.17.2, RabbitMQ 3.10.8 and Artemis 2.40.0, observed; Spring 7.1 source:"
        " StompHeaderAccessor.getAcceptVersion",
        "accept-version",
    ),
    Rule(
        "version-error-without-versions",
        "The ERROR for a CONNECT without a common version has no version header.",
        "ActiveMQ 5.17.2 and CoilMQ 1.1.0, observed",
    ),
    Rule(
        "second-connect-answered",
        "A second CONNECT is answered with another CONNECTED.",
        "CoilMQ 1.1.0 and Artemis 2.40.0, observed",
        "second-connect",
    ),
    Rule(
        "unescapes-connect",
        "The headers of CONNECT are unescaped, including a passcode with backslashes.",
        "ActiveMQ 5.17.2 and RabbitMQ 3.10.8, observed",
    ),
    Rule(
        "unescapes-1.0",
        "Headers are unescaped on 1.0 as well, which has no escapes.",
        "ActiveMQ 5.17.2 and RabbitMQ 3.10.8, observed; Spring 7.1 source: StompDecoder",
    ),
    Rule(
        "escapes-1.0",
        "Headers are escaped on 1.0 as well.",
        "RabbitMQ 3.10.8, observed; Spring 7.1 source: StompEncoder",
    ),
    Rule(
        "crlf-anywhere",
        "Lines may end with CR LF on every version.",
        "RabbitMQ 3.10.8, observed; Spring 7.1 source: StompDecoder",
    ),
    Rule(
        "unknown-ack-mode-is-auto",
        "An unknown ack mode is treated as auto.",
        "ActiveMQ 5.17.2 and CoilMQ 1.1.0, observed",
        "unknown-ack-mode",
    ),
    Rule(
        "selector-ignored",
        "The selector of SUBSCRIBE is ignored: all messages are delivered.",
        "RabbitMQ 3.10.8 and CoilMQ 1.1.0, observed; Spring 7.1 source: DefaultSubscriptionRegistry"
        " without a selectorHeaderName",
    ),
    Rule(
        "browser-ignored",
        "The header browser of SUBSCRIBE is ignored: a client that wants to browse consumes the"
        " messages.",
        "RabbitMQ 3.10.8, CoilMQ 1.1.0 and Artemis 2.40.0, observed; Spring 7.1 source:"
        " DefaultSubscriptionRegistry",
    ),
    Rule(
        "unsubscribe-gives-back",
        "UNSUBSCRIBE returns unacknowledged messages to the next consumer at once. A later ACK"
        " of such a message is an error.",
        "ActiveMQ 5.17.2 and Artemis 2.40.0, observed",
        "late-ack",
    ),
    Rule(
        "redelivered-always",
        "Every MESSAGE has a redelivered header, false at first delivery.",
        "RabbitMQ 3.10.8 and Artemis 2.40.0, observed",
        "redelivered",
    ),
    Rule(
        "redelivered-never",
        "No MESSAGE has a redelivered header.",
        "CoilMQ 1.1.0, observed",
        "redelivered",
    ),
    Rule(
        "receipt-header-echoed",
        "MESSAGE has the receipt header of its SEND.",
        "RabbitMQ 3.10.8, CoilMQ 1.1.0 and Artemis 2.40.0, observed; Spring 7.1 source:"
        " SimpleBrokerMessageHandler.sendMessageToSubscribers copies all headers",
    ),
    Rule(
        "transaction-header-echoed",
        "MESSAGE has the transaction header of its SEND.",
        "RabbitMQ 3.10.8 and Artemis 2.40.0, observed; Spring 7.1 source:"
        " SimpleBrokerMessageHandler.sendMessageToSubscribers copies all headers",
    ),
    Rule(
        "begin-restarts",
        "BEGIN of an open transaction discards its frames.",
        "RabbitMQ 3.10.8 and CoilMQ 1.1.0, observed",
    ),
    Rule(
        "frames-end-with-nul",
        "No line feed follows the NUL of a frame that the broker sends.",
        "CoilMQ 1.1.0, observed; Spring 7.1 source: StompEncoder.encode",
    ),
    Rule(
        "disconnect-stays-open",
        "The broker does not close the connection after the RECEIPT of DISCONNECT. The next"
        " frame closes it.",
        "CoilMQ 1.1.0, observed; Spring 7.1 source: StompSubProtocolHandler.sendToClient closes"
        " after an ERROR only",
    ),
)
