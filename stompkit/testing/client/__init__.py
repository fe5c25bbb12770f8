"""A plain, synchronous STOMP client for tests: it says exactly what happens on the wire.

Every method returns when the broker has answered, or raises a :class:`ClientFailureError` that says
what came instead. The client has no thread: it reads frames and sends heart-beats only while a
method runs. A test that has negotiated heart-beats must therefore keep calling methods.

Brokers deviate from the specification. A workaround for one broker is documented where it is
applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompkit._common.lazy import imported
from stompkit._common.moved import renamed

if TYPE_CHECKING:
    from stompkit.testing.client.client import StompClient
    from stompkit.testing.client.errors import (
        BrokerSaidError,
        ClientFailureError,
        ConnectionLostError,
        NothingReceivedError,
        RefusedError,
        UnexpectedMessageError,
    )

__all__ = [
    "BrokerSaidError",
    "ClientFailureError",
    "ConnectionLostError",
    "NothingReceivedError",
    "RefusedError",
    "StompClient",
    "UnexpectedMessageError",
]

#: Module of this package that defines each name.
_MODULES = {
    "BrokerSaidError": "errors",
    "ClientFailureError": "errors",
    "ConnectionLostError": "errors",
    "NothingReceivedError": "errors",
    "RefusedError": "errors",
    "StompClient": "client",
    "UnexpectedMessageError": "errors",
}


def __getattr__(name: str) -> Any:
    return imported(__name__, _MODULES, name)


renamed(
    __name__,
    ClientFailure="ClientFailureError",
    ConnectionLost="ConnectionLostError",
    NothingReceived="NothingReceivedError",
    Refused="RefusedError",
    UnexpectedMessage="UnexpectedMessageError",
)
