"""A transport of kombu, and so of Celery, over any broker that speaks STOMP.

Importing this package teaches kombu the schemes ``stomp`` and ``stomps``; see ``docs/celery.rst``.
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
