"""The STOMP broker: a domain without transport, and its Twisted shell.

``twistd stompkit`` runs it; :class:`BrokerFactory` embeds it in another Twisted program.
"""

from stompkit.server._acks import Ledger
from stompkit.server._broker import Broker
from stompkit.server._config import BrokerConfig, DestinationConfig, Policy
from stompkit.server._connection import Connection
from stompkit.server._destinations import Destination
from stompkit.server._entries import Entry
from stompkit.server._errors import Refused
from stompkit.server._handlers import Handler
from stompkit.server._protocol import BrokerFactory
from stompkit.server._stores.runner import InlineRunner
from stompkit.server._subscriptions import Subscription
from stompkit.server._transactions import Settlement
from stompkit.server.interfaces import (
    Action,
    Authenticator,
    Authoriser,
    BriefRunner,
    BriefStore,
    Credentials,
    Decision,
    MessageStore,
    Outlet,
    Request,
    StoreRunner,
    User,
)

__all__ = [
    "Action",
    "Authenticator",
    "Authoriser",
    "BriefRunner",
    "BriefStore",
    "Broker",
    "BrokerConfig",
    "BrokerFactory",
    "Connection",
    "Credentials",
    "Decision",
    "Destination",
    "DestinationConfig",
    "Entry",
    "Handler",
    "InlineRunner",
    "Ledger",
    "MessageStore",
    "Outlet",
    "Policy",
    "Refused",
    "Request",
    "Settlement",
    "StoreRunner",
    "Subscription",
    "User",
]
