"""A transport of kombu, and therefore of Celery, for any broker that speaks STOMP.

Importing this package registers the schemes ``stomp`` and ``stomps`` with kombu; see
``docs/howto/celery.rst``.
"""

from stompkit._common.moved import renamed
from stompkit.kombu._channel import Channel
from stompkit.kombu._connection import ConnectionLostError, NoAnswerError, StompConnection
from stompkit.kombu._registration import register
from stompkit.kombu._transport import SecureTransport, Transport

__all__ = [
    "Channel",
    "ConnectionLostError",
    "NoAnswerError",
    "SecureTransport",
    "StompConnection",
    "Transport",
    "register",
]

renamed(
    __name__,
    ConnectionLost="ConnectionLostError",
    NoAnswer="NoAnswerError",
)
