"""The Twisted shell of the beanstalkd front end."""

from __future__ import annotations

from functools import partial

from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import Factory, Protocol

from stompkit._common.addresses import address_text
from stompkit.server.beanstalk.commands import COMMANDS
from stompkit.server.beanstalk.hub import Hub
from stompkit.server.beanstalk.session import Session
from stompkit.server.domain.broker import Broker
from stompkit.server.listen.protocol import BrokerProtocol
from stompkit.server.settings.beanstalk import BeanstalkSettings

__all__ = ["BeanstalkFactory", "BeanstalkProtocol"]


class BeanstalkProtocol(BrokerProtocol):
    """One client's transport, with the back-pressure and closing of STOMP's clients."""

    def connectionMade(self) -> None:
        """Start the session; there is no login."""
        super().connectionMade()
        self.logged_in()


class BeanstalkFactory(Factory):
    """Creates a :class:`BeanstalkProtocol` for each client; pass it to a Twisted endpoint."""

    noisy = False

    def __init__(self, broker: Broker, settings: BeanstalkSettings, clock: IReactorTime) -> None:
        """Serve the queues of an open broker; ``clock`` is the broker's clock."""
        self.hub = Hub(broker, settings)
        self._clock = clock
        broker.flush()

    def buildProtocol(self, addr: IAddress | None) -> Protocol:
        """Return the protocol of one client."""
        make = partial(Session, self.hub, COMMANDS)
        protocol = BeanstalkProtocol(
            self.hub.broker,
            self._clock,
            getattr(addr, "host", ""),
            address=address_text(addr),
            connection=make,
        )
        protocol.factory = self
        return protocol
