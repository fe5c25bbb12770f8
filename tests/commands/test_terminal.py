"""Commands escape control characters in data that they print."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit._commands.shared.message_lines import from_line, to_line
from stompkit._common.text import json_line, shown

#: An 8-bit control sequence, a 7-bit one, a line end that only some know, a change of the text
#: direction, DEL, and characters that are not text.
NASTY = "\x9b31m \x1b]0;x\x07 \u2028 \u202e \x7f \udc80 \U000e0001"


def test_json_has_nothing_that_a_terminal_obeys() -> None:
    line = json_line({"name": NASTY, NASTY: ["caf\u00e9 \U0001f600"]})
    assert line.isprintable()
    assert "caf\u00e9 \U0001f600" in line
    assert json.loads(line) == {"name": NASTY, NASTY: ["caf\u00e9 \U0001f600"]}


def test_a_message_in_a_line_can_still_be_sent_again() -> None:
    body = "\x9b2J\u202ecaf\u00e9".encode()
    line = to_line({"destination": "/queue/a", "note": "\x9b2J"}, body)
    assert line.isprintable()
    message = from_line(line.encode())
    assert (message.body, message.headers["note"]) == (body, "\x9b2J")


@given(st.text(st.characters()))
def test_whatever_it_is(text: str) -> None:
    assert shown(text).isprintable()
    assert json_line(text).isprintable()
    assert json.loads(json_line(text)) == text


@pytest.mark.parametrize("text", [NASTY, "plain", "caf\u00e9"])
def test_text_that_can_be_printed_is_left_as_it_is(text: str) -> None:
    assert (shown(text) == text) is text.isprintable()
