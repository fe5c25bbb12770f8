"""The STOMP broker: a domain without transport, and its Twisted shell.

``twistd stompkit`` runs it; :class:`BrokerFactory` embeds it in another Twisted program.
"""

from stompkit._common.moved import renamed
from stompkit.server.domain.broker import Broker

# Two names for each: plug-ins import the old ones, Entry and Ledger.
from stompkit.server.domain.deliveries import MessageReference, Subscription
from stompkit.server.domain.deliveries import MessageReference as Entry
from stompkit.server.domain.destinations import Destination
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.session.acks import PendingAcks
from stompkit.server.domain.session.acks import PendingAcks as Ledger
from stompkit.server.domain.session.connection import Connection, Handler
from stompkit.server.domain.settlements import Settlement
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
from stompkit.server.listen.factory import BrokerFactory
from stompkit.server.settings.broker import BrokerConfig, DestinationConfig, Policy
from stompkit.server.stores.runner import InlineRunner

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
    "MessageReference",
    "MessageStore",
    "Outlet",
    "PendingAcks",
    "Policy",
    "RefusedError",
    "Request",
    "Settlement",
    "StoreRunner",
    "Subscription",
    "User",
]

renamed(
    __name__,
    Refused="RefusedError",
)
