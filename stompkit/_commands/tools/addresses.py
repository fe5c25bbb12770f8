"""Addresses on the command lines of ``proxy`` and ``tap``, as types of arguments."""

from __future__ import annotations

from stompkit._common.arguments import argument_type
from stompkit.testing import parse_address

__all__ = ["broker_address", "listen_address"]

broker_address = argument_type(parse_address)


@argument_type
def listen_address(text: str) -> tuple[str, int]:
    """Parse an address to listen on, whose port may be 0."""
    if not text.endswith(":0"):
        return parse_address(text)
    host, _ = parse_address(f"{text}1")
    return host, 0
