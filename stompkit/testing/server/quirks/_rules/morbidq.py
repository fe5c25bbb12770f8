"""The rules of MorbidQ."""

from __future__ import annotations

from typing import Final

from stompkit.testing.server.quirks._rules.rule import Rule

__all__ = ["RULES"]

_SEEN: Final = "MorbidQ 0.8.7.3 with stomper 0.2.2, observed"

RULES: Final = (
    Rule(
        "Q1",
        "CONNECTED has a session that counts up from 1 and no other header; accept-version, host"
        " and heart-beat are ignored.",
        _SEEN,
    ),
    Rule(
        "Q2",
        "Commands that STOMP 1.0 does not have, NACK and STOMP among them, and those in small"
        " letters, are skipped without a word, up to the next NUL.",
        _SEEN,
    ),
    Rule(
        "Q3",
        "ACK, BEGIN, COMMIT, ABORT, a frame that only a broker sends, a second CONNECT and any"
        " other first frame close the connection without an ERROR.",
        _SEEN,
    ),
    Rule("Q4", "No receipt is ever answered; MESSAGE has the receipt header of its SEND.", _SEEN),
    Rule(
        "Q5",
        "ack, id, selector and transaction mean nothing: every subscription is in the mode auto,"
        " and what a client had not read when it went is lost.",
        _SEEN,
    ),
    Rule(
        "Q6",
        "The message-id is DESTINATION_NUMBER, counted for each destination and each delivery, in"
        " the place of what the client sent; MESSAGE has neither subscription nor a content-length"
        " that SEND had not.",
        _SEEN,
    ),
    Rule(
        "Q7",
        "/queue/NAME is a queue, whose backlog goes to its first subscriber as a whole and which"
        " then serves its subscribers in turn; any other name is a topic, but for /pubsub/NAME,"
        " which copies to its children: those of /fanout/NAME in the configuration.",
        _SEEN,
    ),
    Rule("Q8", "A line feed follows the NUL of each frame that the broker sends.", _SEEN),
    Rule(
        "Q9",
        "A body with NULs is cut at the first one where content-length is the last header or"
        " missing, and gets a line feed behind each NUL where it is not; without this rule binary"
        " is safe.",
        _SEEN,
    ),
    Rule(
        "Q10",
        "Header values are trimmed and never unescaped, the last one of a name counts, a line"
        " without a colon gives itself the name of all but its last character, and a head with CR"
        " LF is skipped.",
        _SEEN,
    ),
    Rule(
        "Q11",
        "A frame without destination is ignored; ERROR for what is not allowed leaves the"
        " connection open, and ERROR for a wrong login closes it.",
        _SEEN,
    ),
    Rule(
        "Q12",
        "Logins are checked, and rights: to create for the first use of a destination, then to read"
        " or to write. By default everybody may do everything.",
        "MorbidQ 0.8.7.3, observed with rights patched in: its own option for them does not work",
    ),
)
