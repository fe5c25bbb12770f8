"""The rules of the simple broker of Spring's WebSocket support."""

from __future__ import annotations

from typing import Final

from stompkit.testing.server.quirks._rules.rule import Rule

__all__ = ["RULES"]

_READ: Final = "Spring 7.1 source"

RULES: Final = (
    Rule(
        "everything-is-a-topic",
        "Every destination is a topic, including /queue/NAME: all current subscribers get a"
        " copy, and later subscribers get nothing.",
        f"{_READ}: SimpleBrokerMessageHandler.sendMessageToSubscribers",
        "destinations",
    ),
    Rule(
        "acks-ignored",
        "ACK and NACK are ignored, and every subscription is in the mode auto.",
        f"{_READ}: StompCommand.ACK is of the type OTHER; manual, Simple Broker",
        "nack",
    ),
    Rule(
        "no-receipts",
        "Only DISCONNECT is answered with RECEIPT.",
        f"{_READ}: SimpleBrokerMessageHandler.handleMessageInternal; manual, Simple Broker",
    ),
    Rule(
        "no-transactions",
        "BEGIN, COMMIT and ABORT are ignored, and SEND in a transaction takes effect at once.",
        f"{_READ}: StompCommand.BEGIN is of the type OTHER",
    ),
    Rule(
        "no-heart-beats",
        "CONNECTED has heart-beat:0,0, and there are no heart-beats in either direction.",
        f"{_READ}: SimpleBrokerMessageHandler without a TaskScheduler",
        "heart-beat",
    ),
    Rule(
        "version-needed",
        "CONNECT without accept-version, or without a common version, is never answered.",
        f"{_READ}: StompSubProtocolHandler.convertConnectAcktoStompConnected",
    ),
    Rule(
        "connected-without-session",
        "CONNECTED has no session and no server header.",
        f"{_READ}: StompSubProtocolHandler.convertConnectAcktoStompConnected",
    ),
    Rule(
        "missing-headers-ignored",
        "SEND without destination, SUBSCRIBE without id or destination, and UNSUBSCRIBE without id"
        " are ignored.",
        f"{_READ}: AbstractSubscriptionRegistry",
        "subscription-id",
    ),
    Rule(
        "duplicate-id-ignored",
        "A second SUBSCRIBE with the same id is ignored.",
        f"{_READ}: DefaultSubscriptionRegistry.SessionInfo.addSubscription",
        "duplicate-id",
    ),
    Rule(
        "unknown-unsubscribe-ignored",
        "UNSUBSCRIBE for an unknown subscription is ignored.",
        f"{_READ}: DefaultSubscriptionRegistry.removeSubscriptionInternal",
    ),
    Rule(
        "disconnect-answered-by-error",
        "DISCONNECT without receipt is answered with ERROR: Session closed.",
        f"{_READ}: StompSubProtocolHandler.getStompHeaderAccessor",
    ),
    Rule(
        "error-without-body",
        "ERROR has a message header and no body.",
        f"{_READ}: StompSubProtocolHandler.sendErrorMessage",
    ),
)
