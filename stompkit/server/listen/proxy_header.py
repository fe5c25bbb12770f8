"""Parse the header of HAProxy's PROXY protocol, versions 1 and 2.

Source: https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt, sections 2.1 and 2.2.
"""

from __future__ import annotations

import re
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

from twisted.internet import address

__all__ = ["MAX_HEADER_BYTES", "Header", "ProxyHeaderError", "read_header"]

#: Maximum size in bytes of a header with its extensions; a client certificate may be among them.
MAX_HEADER_BYTES: Final = 4_096

_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
#: Maximum length in bytes of a version 1 header, with its line end.
_MOST_V1: Final = 107
_BEGIN_V1: Final = b"PROXY "
_UNKNOWN: Final = re.compile(rb"PROXY UNKNOWN(?: [\x20-\x7e]*)?")
_KNOWN: Final = re.compile(
    rb"PROXY TCP(?P<family>[46]) (?P<source>[0-9A-Fa-f:.]{2,45}) (?P<target>[0-9A-Fa-f:.]{2,45})"
    rb" (?P<source_port>0|[1-9][0-9]{0,4}) (?P<target_port>0|[1-9][0-9]{0,4})"
)

_LOCAL, _PROXIED = 0x20, 0x21
#: Family codes of streams; the sizes in bytes of their addresses and ports follow.
_INET, _INET6, _UNIX = 0x11, 0x21, 0x31
_SIZES: Final = {_INET: 12, _INET6: 36, _UNIX: 216}

_Address = address.IPv4Address | address.IPv6Address | address.UNIXAddress


class ProxyHeaderError(Exception):
    """Bytes that are not a valid header; the message says why."""


class Header(NamedTuple):
    """The content of a header."""

    length: int
    """Length of the header in bytes; the client's bytes follow."""
    source: _Address | None
    """Address of the client; ``None`` for the load balancer itself, or if unknown."""
    target: _Address | None
    """Address that the client connected to."""


def read_header(data: bytes) -> Header | None:
    """Parse the header at the beginning; ``None`` if it is incomplete. Raises ProxyHeaderError."""
    if data[: len(_SIGNATURE)] == _SIGNATURE[: len(data)]:
        return _version_2(data)
    if data[: len(_BEGIN_V1)] == _BEGIN_V1[: len(data)]:
        return _version_1(data)
    raise ProxyHeaderError("it does not begin as a header does")


def _version_1(data: bytes) -> Header | None:
    end = data.find(b"\r\n", 0, _MOST_V1)
    if end < 0:
        if len(data) >= _MOST_V1:
            raise ProxyHeaderError(f"no line of version 1 within {_MOST_V1} octets")
        return None
    line = data[:end]
    if _UNKNOWN.fullmatch(line):
        return Header(end + 2, None, None)
    match = _KNOWN.fullmatch(line)
    if match is None:
        raise ProxyHeaderError("a line of version 1 that cannot be read")
    source = _parsed(match["family"], match["source"], match["source_port"])
    return Header(end + 2, source, _parsed(match["family"], match["target"], match["target_port"]))


def _parsed(family: bytes, text: bytes, port: bytes) -> _Address:
    try:
        host = ip_address(text.decode())
    except ValueError:
        raise ProxyHeaderError("an address that is none") from None
    if host.version != int(family) or int(port) > 65_535:
        raise ProxyHeaderError("an address of another family, or a port that is none")
    return _made(host, int(port))


def _version_2(data: bytes) -> Header | None:
    if len(data) < 16:
        return None
    command, family, length = struct.unpack_from("!BBH", data, 12)
    if command not in (_LOCAL, _PROXIED):
        raise ProxyHeaderError("a version or command that there is not")
    size = 16 + length
    if size > MAX_HEADER_BYTES:
        raise ProxyHeaderError(f"more than {MAX_HEADER_BYTES} octets")
    if command == _PROXIED and family in _SIZES and length < _SIZES[family]:
        raise ProxyHeaderError("too short for its addresses")
    if len(data) < size:
        return None
    if command == _LOCAL or family not in _SIZES:
        # Unknown families and protocols must be accepted and ignored.
        return Header(size, None, None)
    if family == _UNIX:
        paths = (data[16:124], data[124:232])
        source, target = (address.UNIXAddress(path.partition(b"\0")[0]) for path in paths)
        return Header(size, source, target)
    if family == _INET:
        first, second, source_port, target_port = struct.unpack_from("!4s4sHH", data, 16)
        hosts: tuple[IPv4Address | IPv6Address, ...] = (IPv4Address(first), IPv4Address(second))
    else:
        first, second, source_port, target_port = struct.unpack_from("!16s16sHH", data, 16)
        hosts = (IPv6Address(first), IPv6Address(second))
    return Header(size, _made(hosts[0], source_port), _made(hosts[1], target_port))


def _made(host: IPv4Address | IPv6Address, port: int) -> _Address:
    if isinstance(host, IPv6Address):
        mapped = host.ipv4_mapped
        if mapped is None:
            return address.IPv6Address("TCP", str(host), port)
        # The same client as one that connects over IPv4, and counted as such.
        host = mapped
    return address.IPv4Address("TCP", str(host), port)
