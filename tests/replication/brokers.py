"""The connections of links and jobs to the broker of the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from urllib.parse import quote

from stompkit.client.blocking import Link
from stompkit.testing import RunningBroker

__all__ = ["Address", "broker_url", "connect"]


class Address(Protocol):
    """The address of a broker or of a proxy in front of it."""

    @property
    def host(self) -> str:
        """The address."""

    @property
    def port(self) -> int:
        """The TCP port."""


def connect(
    broker: RunningBroker, *before: str, at: Sequence[Address] = (), **settings: Any
) -> Link:
    """Connect to the broker, or ``at`` other addresses; try the hosts in ``before`` first."""
    return Link(
        [*before, *(f"{each.host}:{each.port}" for each in at or (broker,))],
        login=broker.login,
        passcode=broker.passcode,
        virtual_host=broker.vhost,
        **settings,
    )


def broker_url(broker: RunningBroker, destination: str, *addresses: Address) -> str:
    """Return the URL of a destination, with login and virtual host, perhaps at other addresses."""
    user = ""
    if broker.login is not None:
        user = f"{quote(broker.login, safe='')}:{quote(broker.passcode or '', safe='')}@"
    hosts = ",".join(f"{each.host}:{each.port}" for each in addresses or (broker,))
    return f"stomp://{user}{hosts}{quote(destination)}?vhost={quote(broker.vhost, safe='')}"
