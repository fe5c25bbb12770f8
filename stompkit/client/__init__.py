"""A STOMP client on Twisted that reconnects, fails over, and resends unconfirmed messages.

Start with :class:`Client`; ``docs/client.rst`` describes its guarantees.
"""

from stompkit.client._client import Client
from stompkit.client._errors import (
    AttemptTimeout,
    BrokerError,
    BufferFull,
    ClientClosed,
    ClientError,
    ConnectFailed,
    LoginRefused,
    PeerSilent,
    QueueOverflow,
    StaleAcknowledgement,
    SubscriptionEnded,
    TransactionLost,
)
from stompkit.client._hosts import Address
from stompkit.client._messages import AckMode, Message
from stompkit.client._requests import ReplyStyle
from stompkit.client._service import StompService
from stompkit.client._settings import BufferLimits, ReconnectPolicy
from stompkit.client._subscription import Handler, Subscription
from stompkit.client._transactions import Transaction

__all__ = [
    "AckMode",
    "Address",
    "AttemptTimeout",
    "BrokerError",
    "BufferFull",
    "BufferLimits",
    "Client",
    "ClientClosed",
    "ClientError",
    "ConnectFailed",
    "Handler",
    "LoginRefused",
    "Message",
    "PeerSilent",
    "QueueOverflow",
    "ReconnectPolicy",
    "ReplyStyle",
    "StaleAcknowledgement",
    "StompService",
    "Subscription",
    "SubscriptionEnded",
    "Transaction",
    "TransactionLost",
]
