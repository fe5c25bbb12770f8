"""The STOMP broker: a domain without transport, and its Twisted shell.

``twistd stompkit`` runs it; :class:`BrokerFactory` embeds it in another Twisted program.
"""

from stompkit.server._broker import Broker
from stompkit.server._config import BrokerConfig
from stompkit.server._connection import Connection
from stompkit.server._protocol import BrokerFactory
from stompkit.server.interfaces import Outlet

__all__ = ["Broker", "BrokerConfig", "BrokerFactory", "Connection", "Outlet"]
