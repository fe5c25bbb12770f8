"""Whom an address stands for, where connections and wrong passcodes are counted."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

__all__ = ["counted_as"]

#: What one customer of a provider gets at the least: all of it can be one attacker (RFC 6177).
_PREFIX_BITS: Final = 64


def counted_as(peer: str) -> str:
    """What an address is counted under: of IPv6 its network of 64 bits, all else as it is."""
    if ":" not in peer:
        return peer
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if not isinstance(address, IPv6Address):
        return peer
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if address.is_loopback:
        return str(address)
    return str(ip_network((int(address), _PREFIX_BITS), strict=False))
