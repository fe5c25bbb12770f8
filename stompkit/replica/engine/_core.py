"""State that the parts of an engine share: identity, vector, channels, and sending."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from stompkit.replica.applier import Applier
from stompkit.replica.engine._facts import _Facts, facts_of
from stompkit.replica.engine._types import EngineSettings, Outgoing
from stompkit.replica.messages import Message, pack
from stompkit.replica.nodes import Node
from stompkit.replica.signing import Signer
from stompkit.replica.store import Store

__all__ = ["Core", "destination_of"]


def destination_of(channel: str) -> str:
    """Return the destination of a channel: a topic, unless it already is a destination."""
    return channel if channel.startswith("/") else f"/topic/{channel}"


class Core:
    """The shared state of an engine; ``counts`` has its counters."""

    def __init__(
        self,
        store: Store,
        applier: Applier,
        settings: EngineSettings,
        *,
        wall: Callable[[], float],
        monotonic: Callable[[], float],
        chance: random.Random,
        send: Callable[[Outgoing], None],
        signer: Signer | None,
        trace: Callable[[str, dict[str, Any]], None],
    ) -> None:
        """Start empty; the store is opened later."""
        self.store: Final = store
        self.applier: Final = applier
        self.settings: Final = settings
        self.wall: Final = wall
        self.monotonic: Final = monotonic
        self.chance: Final = chance
        self.trace: Final = trace
        self.counts: Final[Counter[str]] = Counter()
        self.connected: Final[set[int]] = set()
        self.warnings: Final[dict[str, str]] = {}
        self._send = send
        self._signer = signer
        self.node = Node("", "")
        self.session = ""
        self.vector: dict[str, int] = {}
        self.floor: dict[str, int] = {}

    @property
    def origin(self) -> str:
        """Origin of this node."""
        return self.node.origin

    def own_destination(self, port: int, origin: str) -> str:
        """Return the destination for messages to one node only."""
        channel = destination_of(self.settings.channels[port])
        return f"{channel}.{origin.replace('~', '-')}"

    def say(
        self, port: int, facts: _Facts, items: list[bytes] | None = None, *, to: str = ""
    ) -> None:
        """Send a message to all subscribers of a channel, or to one node there."""
        kind, made = facts_of(facts)
        self.send(port, Message(kind, self.origin, made, items or []), to=to)

    def send(self, port: int, message: Message, *, to: str = "", persistent: bool = False) -> None:
        """Send a prepared message to all subscribers of a channel, or to one node."""
        packets = list(
            pack(
                message,
                max_body_bytes=self.settings.max_body_bytes,
                signer=self._signer,
                persistent=persistent,
                occasion=f"{self.chance.getrandbits(48):012x}",
            )
        )
        self.send_packets(port, packets, to=to)

    def send_packets(self, port: int, packets: list[Any], *, to: str = "") -> None:
        """Send frames unchanged."""
        if port not in self.connected:
            return
        destination = (
            self.own_destination(port, to) if to else destination_of(self.settings.channels[port])
        )
        self.trace("publish", {"port": port, "destination": destination, "frames": len(packets)})
        self.counts["sent"] += len(packets)
        self._send(Outgoing(port, destination, packets))
        self.trace("published", {"port": port, "destination": destination})
