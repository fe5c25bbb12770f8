"""A transport of kombu, and therefore of Celery, for any broker that speaks STOMP.

Importing this package registers the schemes ``stomp`` and ``stomps`` with kombu; see
``docs/celery.rst``.
"""

from stompkit.kombu._channel import Channel
from stompkit.kombu._connection import ConnectionLost, NoAnswer, StompConnection
from stompkit.kombu._registration import register
from stompkit.kombu._transport import SecureTransport, Transport

__all__ = [
    "Channel",
    "ConnectionLost",
    "NoAnswer",
    "SecureTransport",
    "StompConnection",
    "Transport",
    "register",
]
