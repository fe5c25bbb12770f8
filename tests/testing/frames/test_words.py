"""Values as they are shown in messages."""

from __future__ import annotations

import pytest

from stompkit.frames import Frame
from stompkit.testing.frames.words import shown_frame, shown_text


@pytest.mark.parametrize("length", [120, 121, 140])
def test_a_value_is_not_cut_where_that_saves_nothing(length: int) -> None:
    text = "x" * length
    assert shown_text(text) == repr(text)
    assert shown_frame(Frame("ERROR", {"message": text})) == f"ERROR  message:{text}"


def test_a_long_value_is_cut_with_its_length() -> None:
    assert shown_text("x" * 141) == repr("x" * 120) + "... (141 characters)"
    assert shown_text(b"x" * 141) == repr(b"x" * 120) + "... (141 octets)"
