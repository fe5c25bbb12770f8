"""The rules of MorbidQ."""

from __future__ import annotations

from typing import Final

from stompkit.testing.server.quirks._rules.rule import Rule

__all__ = ["RULES"]

_SEEN: Final = "MorbidQ 0.8.7.3 with stomper 0.2.2, observed"

RULES: Final = (
    Rule(
        "Q1",
        "CONNECTED has a session number that counts from 1 and no other header. accept-version,"
        " host and heart-beat are ignored.",
        _SEEN,
    ),
    Rule(
        "Q2",
        "Commands that STOMP 1.0 does not have, such as NACK and STOMP, and commands in lower"
        " case are skipped up to the next NUL. There is no ERROR.",
        _SEEN,
    ),
    Rule(
        "Q3",
        "ACK, BEGIN, COMMIT, ABORT, a frame of a broker, a second CONNECT and any other first"
        " frame close the connection without an ERROR.",
        _SEEN,
    ),
    Rule("Q4", "The broker sends no RECEIPT. MESSAGE has the receipt header of its SEND.", _SEEN),
    Rule(
        "Q5",
        "ack, id, selector and transaction are ignored. Every subscription is in the mode auto,"
        " and messages that a client has not read before it disconnects are lost.",
        _SEEN,
    ),
    Rule(
        "Q6",
        "The message-id is DESTINATION_NUMBER, counted for each destination and delivery; it"
        " replaces a message-id of the client. MESSAGE has no subscription header, and a"
        " content-length only if SEND had one.",
        _SEEN,
    ),
    Rule(
        "Q7",
        "/queue/NAME is a queue. Its first subscriber gets the whole backlog; after that, its"
        " subscribers get messages in turn. /pubsub/NAME copies to its children, those of"
        " /fanout/NAME in the configuration. Any other name is a topic.",
        _SEEN,
    ),
    Rule("Q8", "A line feed follows the NUL of each frame that the broker sends.", _SEEN),
    Rule(
        "Q9",
        "A body with NULs is cut at the first NUL if content-length is the last header or"
        " missing. Otherwise it gets a line feed after each NUL. Without this rule, binary bodies"
        " are safe.",
        _SEEN,
    ),
    Rule(
        "Q10",
        "Header values are trimmed and never unescaped, and the last value of a repeated header"
        " applies. A line without a colon becomes a header whose name lacks the last character. A"
        " frame with CR LF in its headers is skipped.",
        _SEEN,
    ),
    Rule(
        "Q11",
        "A frame without destination is ignored. An ERROR for a missing permission leaves the"
        " connection open, and an ERROR for a wrong login closes it.",
        _SEEN,
    ),
    Rule(
        "Q12",
        "Logins and permissions are checked: create for the first use of a destination, then"
        " read or write. By default, everyone has all permissions.",
        "MorbidQ 0.8.7.3, observed with rights patched in: its own option for them does not work",
    ),
)
