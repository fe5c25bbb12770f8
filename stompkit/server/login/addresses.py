"""Map addresses to the keys under which connections and wrong passcodes are counted."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

__all__ = ["counted_as"]

#: Minimum prefix length in bits of a provider's customer: one attacker may own all of it (RFC
#: 6177).
_PREFIX_BITS: Final = 64


def counted_as(peer: str) -> str:
    """Return the key of an address: for IPv6 its /64 network, otherwise the address itself."""
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
