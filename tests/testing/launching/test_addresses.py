"""Addresses of brokers, in the form of the options of tests and of the conformance suite."""

from __future__ import annotations

import pytest

from stompkit.testing import parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:61613", ("localhost", 61613)),
        ("[::1]:1", ("::1", 1)),
        ("stomp://localhost:1", ("localhost", 1)),
        ("stomp://[::1]:1/", ("::1", 1)),
        ("stomp://[::1]", ("::1", 61613)),
        ("stomp://mq.example", ("mq.example", 61613)),
    ],
)
def test_forms_of_an_address(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("localhost", "is not HOST:PORT"),
        ("::1:61613", "is not HOST:PORT"),
        ("localhost:0", "is not a port"),
        ("stomp://", "is not HOST:PORT"),
        ("stomp://localhost:x", "is not a port"),
        ("stomp://ann:secret@localhost:1", "login and passcode are options"),
        ("stomps://localhost:1", "over TLS, which is not spoken here"),
        ("http://localhost:1", "is not HOST:PORT"),
    ],
)
def test_what_is_no_address_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        parse_address(text)
    assert "secret" not in str(caught.value)
