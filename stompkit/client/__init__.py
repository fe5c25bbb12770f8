"""A STOMP client on Twisted that reconnects, fails over, and resends unconfirmed messages.

Start with :class:`Client`; ``docs/reference/client.rst`` describes its guarantees.
"""

from stompkit._common.moved import renamed
from stompkit.client._client import Client
from stompkit.client._errors import (
    AttemptTimeoutError,
    BrokerError,
    BufferFullError,
    ClientClosedError,
    ClientError,
    ConnectFailedError,
    LoginRefusedError,
    PeerSilentError,
    QueueOverflowError,
    StaleAcknowledgementError,
    SubscriptionEndedError,
    TransactionLostError,
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
    "AttemptTimeoutError",
    "BrokerError",
    "BufferFullError",
    "BufferLimits",
    "Client",
    "ClientClosedError",
    "ClientError",
    "ConnectFailedError",
    "Handler",
    "LoginRefusedError",
    "Message",
    "PeerSilentError",
    "QueueOverflowError",
    "ReconnectPolicy",
    "ReplyStyle",
    "StaleAcknowledgementError",
    "StompService",
    "Subscription",
    "SubscriptionEndedError",
    "Transaction",
    "TransactionLostError",
]

renamed(
    __name__,
    AttemptTimeout="AttemptTimeoutError",
    BufferFull="BufferFullError",
    ClientClosed="ClientClosedError",
    ConnectFailed="ConnectFailedError",
    LoginRefused="LoginRefusedError",
    PeerSilent="PeerSilentError",
    QueueOverflow="QueueOverflowError",
    StaleAcknowledgement="StaleAcknowledgementError",
    SubscriptionEnded="SubscriptionEndedError",
    TransactionLost="TransactionLostError",
)
