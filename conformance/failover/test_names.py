"""Names that stand for several addresses: a client may be at any of them."""

import ipaddress
import socket
from dataclasses import replace

from stompkit.conformance import FailedError, Target, UnsupportedError, trial
from stompkit.conformance.address import Address


def is_literal(host: str) -> bool:
    """Whether a host is an address itself, of IPv4 or IPv6."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def addresses_of(node: Address) -> list[str]:
    """The addresses that a node's name stands for, of both kinds, each once."""
    try:
        found = socket.getaddrinfo(node.host, node.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise FailedError(f"{node.host} can't be looked up: {error.strerror}") from None
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


@trial(
    "failover/names/every-address",
    "A server answers at every address of its name, IPv4 or IPv6: a client may take any of them.",
    level="SHOULD",
    section="Names with several addresses",
)
def test_every_address_answers(target: Target) -> None:
    """Look up the name of each node, and CONNECT to each of its addresses; all answer."""
    whole = target.address
    nodes = [whole.node(number) for number in range(whole.nodes)]
    named = {node: addresses_of(node) for node in nodes if not is_literal(node.host)}
    if not named:
        raise UnsupportedError(
            "the target is known by an IP address: by --mq NAME:PORT all addresses of the name are"
            " tried"
        )
    if all(len(addresses) == 1 for addresses in named.values()):
        raise UnsupportedError("the name of the target has one address only")
    for node, addresses in named.items():
        for address in addresses:
            # The name stays what CONNECT's host header has.
            target.address = replace(node, host=address, vhost=node.vhost or node.host)
            try:
                target.connect().close()
            except FailedError as error:
                target.should(False, f"{node.host} at {address}: {error}")
            else:
                target.note(f"{node.host} answers at {address}")
