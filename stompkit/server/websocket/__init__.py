"""STOMP over WebSocket (RFC 6455)."""

from __future__ import annotations

from stompkit.server.websocket.port import WebSocketFactory, WebSocketProtocol

__all__ = ["WebSocketFactory", "WebSocketProtocol"]
