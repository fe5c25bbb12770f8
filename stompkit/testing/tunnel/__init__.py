"""Plain STOMP on this side, and STOMP over TLS or WebSockets to the broker.

A test that sends raw bytes to a broker then needs neither TLS nor WebSockets: it connects to a
tunnel.
"""

from __future__ import annotations

from stompkit.testing.launching.place import Place
from stompkit.testing.tunnel.tunnel import Tunnel

__all__ = ["Place", "Tunnel"]
