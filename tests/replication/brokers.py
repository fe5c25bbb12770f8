"""How links and jobs get to the broker that the tests run on, whichever it is."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from stompkit.replication.link import Link
from stompkit.testing import RunningBroker
from stompkit.testing.proxy import Proxy

__all__ = ["broker_url", "connect"]


def connect(broker: RunningBroker, *before: str, via: Proxy | None = None, **settings: Any) -> Link:
    """Connect, or to one of the hosts that are ``before`` the broker."""
    where = broker if via is None else via
    return Link(
        [*before, f"{where.host}:{where.port}"],
        login=broker.login,
        passcode=broker.passcode,
        virtual_host=broker.vhost,
        **settings,
    )


def broker_url(broker: RunningBroker, destination: str) -> str:
    """The URL of a destination, with the login and the virtual host."""
    user = ""
    if broker.login is not None:
        user = f"{quote(broker.login, safe='')}:{quote(broker.passcode or '', safe='')}@"
    host = f"{broker.host}:{broker.port}{quote(destination)}"
    return f"stomp://{user}{host}?vhost={quote(broker.vhost, safe='')}"
