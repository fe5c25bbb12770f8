"""The settings of a port for STOMP over WebSocket.

They are separate from its code: few brokers use it, and wsproto may not be installed.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

__all__ = ["WebSocketListener"]

Seconds = Annotated[float, Meta(ge=0)]


class WebSocketListener(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A port for STOMP over WebSocket, for browsers above all; docs/howto/websocket.rst has more.

    It takes ``pip install 'stompkit[websocket]'``.
    """

    endpoint: str
    """Endpoint to listen on, as in ``[[listen]]``: ``tcp:15674:interface=127.0.0.1``, or for
    ``wss`` ``stomps:15673:certificate=FILE``."""
    path: str = "/"
    """The path that clients have to ask for, as in ``ws://HOST:15674/``; what follows a question
    mark in it does not matter."""
    allow_origins: tuple[str, ...] = ()
    """The origins whose pages may connect besides those of the broker's own host:
    ``https://shop.example``, with the port where it is not the usual one. ``null`` stands for
    pages without an origin, as files are, and ``*`` for all. Clients other than browsers send
    no origin, and need none."""
    hosts: tuple[str, ...] = ()
    """The names by which clients may ask for the broker, ``mq.example``, without a port: all if
    none is listed. With a list, requests for other names are refused, which stops pages that use
    DNS rebinding. Numbers and names of loopback are accepted on loopback."""
    messages: Literal["as-received", "text", "binary"] = "as-received"
    """The kind of messages that the client gets: that of the last one it has sent, or always
    ``text``, or always ``binary``. What is not UTF-8 is in binary messages in any case."""
    max_message_bytes: Annotated[int, Meta(ge=1)] = 8 * 1024
    """Bytes of a message to the client that holds several frames; a larger frame has a separate
    message. The WebSocket clients of Java's servers, and with them Spring's, accept 8 KiB by
    default. They close the connection if a message is larger."""
    ping_interval_s: Seconds = 30.0
    """Seconds of silence after which a client is sent a ping, which browsers answer by themselves;
    0 for never. It also keeps proxies from taking the connection for dead."""
    ping_timeout_s: Annotated[float, Meta(gt=0)] = 30.0
    """Seconds that a client has to answer it, with whatever it sends."""
    max_handshake_bytes: Annotated[int, Meta(ge=1024)] = 16 * 1024
    """Bytes of the request by which a client begins, cookies included. It has to be there, and
    the login behind it, within ``login_timeout_s`` of ``[broker]``."""
