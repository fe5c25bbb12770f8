"""Addresses of targets."""

from __future__ import annotations

import pytest

from stompkit.conformance.address import Address


def test_text_is_what_the_command_line_takes() -> None:
    assert str(Address("localhost", 61613)) == "localhost:61613"
    assert str(Address("::1", 61613)) == "[::1]:61613"
    assert str(Address("a", 1, others=(("b", 2), ("::2", 3)))) == "a:1,b:2,[::2]:3"


def test_nodes() -> None:
    address = Address("a", 1, "me", others=(("b", 2), ("c", 3)), timeout_s=7.0)
    assert address.nodes == 3
    assert [str(address.node(number)) for number in range(3)] == ["a:1", "b:2", "c:3"]
    assert address.node(2).login == "me"
    assert address.node(2).timeout_s == 7.0
    with pytest.raises(IndexError):
        address.node(3)


def test_passcode_is_not_shown() -> None:
    assert "secret" not in repr(Address("localhost", 1, "me", "secret"))
    assert Address("localhost", 1, "me", "secret").secret == "secret"
    assert Address("localhost", 1, "guest", "guest").secret is None
