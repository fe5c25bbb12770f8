"""Rules that each received frame has to keep, and what is no violation of them."""

from __future__ import annotations

import pytest

from stompkit.conformance.wire.octets import Headers
from tests.conformance.conftest import Dial
from tests.conformance.scripted import Line, connected, frame

MESSAGE = {"destination": "/queue/q", "message-id": "1", "subscription": "s"}
BYTES = frame("MESSAGE", MESSAGE).replace(b"\n\n", b"\nh:\xff\n\n", 1)
ESCAPE = frame("MESSAGE", MESSAGE).replace(b"\n\n", b"\nh:\\t\n\n", 1)
SUBSCRIBE: tuple[str, Headers] = ("SUBSCRIBE", {"id": "s", "destination": "/queue/q"})
UNSUBSCRIBE: tuple[str, Headers] = ("UNSUBSCRIBE", {"id": "s", "receipt": "r"})
RECEIPT = frame("RECEIPT", {"receipt-id": "r"})


def violations(
    target: Dial, sent: list[tuple[str, Headers]], answer: bytes, *, is_valid: bool = True
) -> list[str]:
    """Return the statements that these octets violate after these frames."""

    def behaviour(line: Line) -> None:
        connected(line)
        for _ in sent:
            line.frame()
        line.send(answer)
        line.end()

    at = target(behaviour)
    at.has_valid_frames = is_valid
    peer = at.connect()
    for command, headers in sent:
        peer.send(command, headers)
    peer.expect_close()
    at.finish()
    return sorted(at.violations)


@pytest.mark.parametrize(
    ("octets", "rule"),
    [(BYTES, "1.2/encoding/utf8-headers"), (ESCAPE, "1.2/encoding/encode-reverse")],
)
def test_grammar_counts_unless_malformed_frames_were_sent(
    octets: bytes, rule: str, target: Dial
) -> None:
    """Each part of the grammar counts in the case with the sentence about it."""
    assert violations(target, [SUBSCRIBE], octets) == [rule]
    assert violations(target, [SUBSCRIBE], octets, is_valid=False) == []


def test_nothing_comes_after_the_receipt_of_unsubscribe(target: Dial) -> None:
    """Messages that are on their way before it are fine, and so are those of another one."""
    rule = ["1.2/unsubscribe/no-more-messages"]
    message = frame("MESSAGE", MESSAGE)
    other = frame("MESSAGE", {**MESSAGE, "subscription": "other"})
    again: list[tuple[str, Headers]] = [SUBSCRIBE, UNSUBSCRIBE, SUBSCRIBE]
    assert violations(target, [SUBSCRIBE, UNSUBSCRIBE], RECEIPT + message) == rule
    assert violations(target, [SUBSCRIBE, UNSUBSCRIBE], message + RECEIPT + other) == []
    assert violations(target, again, RECEIPT + message) == []


@pytest.mark.parametrize("value", ["r", "last"])
def test_any_of_repeated_headers_can_be_answered(value: str, target: Dial) -> None:
    """The first one SHOULD be used, which leaves a choice."""
    asked: Headers = [("destination", "/queue/q"), ("receipt", "r"), ("receipt", "last")]
    answer = frame("RECEIPT", {"receipt-id": value})
    assert violations(target, [("SEND", asked)], answer) == []
    assert violations(target, [("SEND", asked)], answer + answer) == [
        "1.2/receipt-frame/receipt-id"
    ]
