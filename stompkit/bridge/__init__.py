"""Store-and-forward between brokers: forward the messages of one site's destinations to another.

:class:`Bridge` runs the routes of :class:`BridgeSettings`; ``docs/howto/bridge.rst`` describes its
guarantees, and ``stompkit bridge`` is the command.
"""

from __future__ import annotations

from stompkit._common.moved import renamed
from stompkit.bridge._bridge import Bridge
from stompkit.bridge._buffer import waiting_in
from stompkit.bridge._errors import BridgeError
from stompkit.bridge._headers import HOPS, ID
from stompkit.bridge._settings import BridgeSettings, Leg, Site
from stompkit.bridge._status import BridgeStatus, RouteStatus
from stompkit.bridge._toml import load, parse, site_name

__all__ = [
    "HOPS",
    "ID",
    "Bridge",
    "BridgeError",
    "BridgeSettings",
    "BridgeStatus",
    "Leg",
    "RouteStatus",
    "Site",
    "load",
    "parse",
    "site_name",
    "waiting_in",
]

renamed(
    __name__,
    BridgeProblem="BridgeError",
)
