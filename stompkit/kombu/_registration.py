"""Registration of two schemes in kombu's table of transports, which has no entry points."""

from __future__ import annotations

from kombu.transport import TRANSPORT_ALIASES

__all__ = ["register"]


def register() -> None:
    """Register ``stomp://`` and ``stomps://`` with kombu; repeated calls change nothing."""
    TRANSPORT_ALIASES["stomp"] = "stompkit.kombu:Transport"
    TRANSPORT_ALIASES["stomps"] = "stompkit.kombu:SecureTransport"


register()
