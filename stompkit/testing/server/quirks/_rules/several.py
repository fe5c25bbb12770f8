"""The rules that several brokers have."""

from __future__ import annotations

from typing import Final

from stompkit.testing.server.quirks._rules.rule import Rule

__all__ = ["RULES"]

RULES: Final = (
    Rule(
        "error-stays-open",
        "An ERROR for a frame that can't be done leaves the connection open.",
        "ActiveMQ 5.17.2, RabbitMQ 3.10.8 and CoilMQ 1.1.0, observed",
        "error",
    ),
    Rule(
        "failed-connect-stays-open",
        "A CONNECT that is refused for its login, host or heart-beat leaves the connection open for"
        " another try.",
        "RabbitMQ 3.10.8 and CoilMQ 1.1.0, observed",
    ),
    Rule(
        "malformed-closes-silently",
        "Octets that are no frame close the connection without an ERROR.",
        "RabbitMQ 3.10.8 and CoilMQ 1.1.0, observed",
    ),
    Rule(
        "timeouts-close-silently",
        "A client that has been silent for too long is closed without an ERROR.",
        "ActiveMQ 5.17.2 and RabbitMQ 3.10.8, observed",
    ),
    Rule(
        "silent-client-two-checks",
        "The broker looks for the client once in each interval of its heart-beats, and closes when"
        " two looks in a row have found nothing: after two to three intervals.",
        "ActiveMQ 5.17.2 and RabbitMQ 3.10.8, observed",
    ),
    Rule(
        "error-without-receipt-id",
        "ERROR does not say to which receipt it is the answer.",
        "RabbitMQ 3.10.8 and CoilMQ 1.1.0, observed; Spring 7.1 source:"
        " StompSubProtocolHandler.sendErrorMessage",
    ),
    Rule(
        "spaces-hide-versions",
        'A version behind a space in accept-version is not seen: "1.0, 1.1" offers 1.0 only.',
        "ActiveMQ 5.17.2, RabbitMQ 3.10.8 and Artemis 2.40.0, observed; Spring 7.1 source:"
        " StompHeaderAccessor.getAcceptVersion",
        "accept-version",
    ),
    Rule(
        "version-error-without-versions",
        "The ERROR for a CONNECT without a version in common has no version header.",
        "ActiveMQ 5.17.2 and CoilMQ 1.1.0, observed",
    ),
    Rule(
        "second-connect-answered",
        "A second CONNECT is answered by another CONNECTED.",
        "CoilMQ 1.1.0 and Artemis 2.40.0, observed",
        "second-connect",
    ),
    Rule(
        "unescapes-connect",
        "The headers of CONNECT are unescaped, a passcode with backslashes, too.",
        "ActiveMQ 5.17.2 and RabbitMQ 3.10.8, observed",
    ),
    Rule(
        "unescapes-1.0",
        "Headers are unescaped on 1.0 as well, which knows no escapes.",
        "ActiveMQ 5.17.2 and RabbitMQ 3.10.8, observed; Spring 7.1 source: StompDecoder",
    ),
    Rule(
        "escapes-1.0",
        "Headers are escaped on 1.0 as well.",
        "RabbitMQ 3.10.8, observed; Spring 7.1 source: StompEncoder",
    ),
    Rule(
        "crlf-anywhere",
        "Lines may end in CR LF on every version.",
        "RabbitMQ 3.10.8, observed; Spring 7.1 source: StompDecoder",
    ),
    Rule(
        "unknown-ack-mode-is-auto",
        "An ack mode that there is not is taken for auto.",
        "ActiveMQ 5.17.2 and CoilMQ 1.1.0, observed",
        "unknown-ack-mode",
    ),
    Rule(
        "selector-ignored",
        "The selector of SUBSCRIBE is ignored: everything is delivered.",
        "RabbitMQ 3.10.8 and CoilMQ 1.1.0, observed; Spring 7.1 source: DefaultSubscriptionRegistry"
        " without a selectorHeaderName",
    ),
    Rule(
        "browser-ignored",
        "The header browser of SUBSCRIBE is ignored: who only wanted to look takes the messages.",
        "RabbitMQ 3.10.8, CoilMQ 1.1.0 and Artemis 2.40.0, observed; Spring 7.1 source:"
        " DefaultSubscriptionRegistry",
    ),
    Rule(
        "unsubscribe-gives-back",
        "UNSUBSCRIBE gives what is not acknowledged to the next consumer at once, and ACK of it is"
        " an error from then on.",
        "ActiveMQ 5.17.2 and Artemis 2.40.0, observed",
        "late-ack",
    ),
    Rule(
        "redelivered-always",
        "Every MESSAGE has a redelivered header, false the first time.",
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
        "BEGIN of an open transaction drops what is in it.",
        "RabbitMQ 3.10.8 and CoilMQ 1.1.0, observed",
    ),
    Rule(
        "frames-end-with-nul",
        "No line feed follows the NUL of a frame that the broker sends.",
        "CoilMQ 1.1.0, observed; Spring 7.1 source: StompEncoder.encode",
    ),
    Rule(
        "disconnect-stays-open",
        "The broker does not close after the RECEIPT of DISCONNECT; the next frame does it.",
        "CoilMQ 1.1.0, observed; Spring 7.1 source: StompSubProtocolHandler.sendToClient closes"
        " after an ERROR only",
    ),
)
