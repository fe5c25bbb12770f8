"""Two more schemes in kombu's table of transports, which has no entry points."""

from __future__ import annotations

from kombu.transport import TRANSPORT_ALIASES

__all__ = ["register"]


def register() -> None:
    """Let kombu know ``stomp://`` and ``stomps://``; to do so again changes nothing."""
    TRANSPORT_ALIASES["stomp"] = "stompkit.kombu:Transport"
    TRANSPORT_ALIASES["stomps"] = "stompkit.kombu:SecureTransport"


register()
