"""STOMP over WebSocket (RFC 6455)."""

from __future__ import annotations

from stompkit.server.websocket.factory import WebSocketFactory
from stompkit.server.websocket.protocol import WebSocketProtocol

__all__ = ["WebSocketFactory", "WebSocketProtocol"]
