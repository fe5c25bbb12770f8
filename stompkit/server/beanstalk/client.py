"""The contract of a client: its tubes, and the calls that the modules below make upwards."""

from __future__ import annotations

from stompkit.server.beanstalk.jobs import DEFAULT_TUBE
from stompkit.server.domain.broker import Broker
from stompkit.server.domain.session.acks import PendingAcks
from stompkit.server.domain.session.base import BrokerSession
from stompkit.server.interfaces import Outlet

__all__ = ["Client"]


class Client(BrokerSession):
    """A client as the hub, its worker and its replies know it."""

    def __init__(self, broker: Broker, outlet: Outlet, now: float) -> None:
        """Start with the tube ``default``."""
        super().__init__(broker, outlet, now)
        self.ledger = PendingAcks("1.2", most_octets=broker.config.max_unacknowledged_bytes)
        self.used = DEFAULT_TUBE
        self.watched: dict[str, None] = {DEFAULT_TUBE: None}
        self.is_producer = self.is_worker = False
        #: True while a ``reserve`` waits.
        self.is_waiting = False

    @property
    def protocol(self) -> str:
        """The name of the protocol."""
        return "beanstalk"

    @property
    def is_logged_in(self) -> bool:
        """True: there is no login."""
        return True

    def look_again(self) -> None:
        """Check for a job, if the client waits for one."""
        raise NotImplementedError

    def finish(self, reply: bytes) -> None:
        """Reply to the command that has waited, and run those that follow."""
        raise NotImplementedError
