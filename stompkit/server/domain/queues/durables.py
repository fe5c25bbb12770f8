"""Durable subscriptions of topics: a queue that collects while its subscriber is away."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from stompkit.server.domain.errors import Refused
from stompkit.server.domain.messages import Message
from stompkit.server.domain.names import DURABLES, is_pattern
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.session.headers import flag
from stompkit.server.domain.session.subscriptions import Subscription
from stompkit.server.interfaces import LaneState
from stompkit.server.selectors import Selector
from stompkit.server.settings.broker import Policy
from stompkit.server.stores.records import DurableRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stompkit.server.domain.hosts import VirtualHost

__all__ = [
    "DurableQueue",
    "durable_key",
    "durable_name",
    "named_durable_key",
    "stored_durable_name",
]


#: Headers of SUBSCRIBE that name a durable subscription of a client that has said client-id.
_NAMES = (
    "activemq.subscriptionName",
    "activemq.subcriptionName",
    "durable-subscription-name",
    "durable-subscriber-name",
)


def durable_key(headers: Mapping[str, str], client_id: str | None) -> tuple[str, bool] | None:
    """The name of the durable subscription that SUBSCRIBE or UNSUBSCRIBE speaks of.

    ``None`` for an ordinary one. The second of the pair says whether several clients can share
    it: they can where they say it as RabbitMQ's do, with ``durable:true``, ``auto-delete:false``
    and an ``id``. ActiveMQ's and Artemis's clients give it a name, and a ``client-id`` in
    CONNECT. Raises :class:`Refused` for half of that.
    """
    for header in _NAMES:
        if header in headers:
            if not client_id:
                raise Refused(f"{header} needs a client-id header in CONNECT", "missing-header")
            return f"{client_id}\n{headers[header]}", False
    is_durable, is_persistent = flag(headers, "durable"), flag(headers, "persistent")
    if (is_durable or is_persistent) and not flag(headers, "auto-delete"):
        if "id" not in headers:
            raise Refused("a durable subscription needs an id", "missing-header")
        name = headers.get("x-queue-name", headers["id"])
        return f"\n{name}", True
    return None


def durable_name(key: str) -> str:
    """The name of the queue of a durable subscription; no two keys have the same."""
    client_id, _, name = key.partition("\n")
    return f"{DURABLES}{quote(client_id, safe='', errors='surrogateescape')}/{name}"


def named_durable_key(name: str) -> str | None:
    """Return the key of the durable subscription whose queue has a name; ``None`` for others."""
    if not name.startswith(DURABLES):
        return None
    client_id, _, own = name.removeprefix(DURABLES).partition("/")
    return f"{unquote(client_id, errors='surrogateescape')}\n{own}"


def stored_durable_name(record: DurableRecord) -> str:
    """What the store has the messages of a durable subscription under.

    No other one has the same, nor has what the name stood for before.
    """
    name = durable_name(record.key)
    if not record.generation:
        return name
    # A colon would be quoted in what comes first in the name.
    return f"{DURABLES}{record.generation}:{name.removeprefix(DURABLES)}"


class DurableQueue(Queue):
    """The messages of a topic, or of all that match a pattern, for one durable subscription."""

    def __init__(
        self,
        record: DurableRecord,
        policy: Policy,
        host: VirtualHost,
        states: Sequence[LaneState] = (),
    ) -> None:
        """Begin to collect."""
        super().__init__(durable_name(record.key), policy, host, states)
        self.record = record
        self.pattern = host.pattern(record.topic) if is_pattern(record.topic) else None
        self.selector = Selector(record.selector) if record.selector else None
        #: What its name stood for before, which goes on collecting until the store has the change.
        self.replaced: DurableQueue | None = None

    def _read_policy(self) -> None:
        super()._read_policy()
        # Whoever sends to its topic is not to be refused for its sake.
        self._is_trimmed = True

    @property
    def charged_to(self) -> str:
        """The user whose limits count it, and what is made for it."""
        return self.record.owner or ""

    def check_user(self, user: str | None) -> None:
        """Raise :class:`Refused` for a user to whom it does not belong.

        ``None`` is somebody whose login nobody checks, and who may do everything.
        """
        owner = self.record.owner
        if user is not None and owner is not None and user != owner:
            raise Refused("the durable subscription belongs to another user", "not-authorised")

    @property
    def stored_as(self) -> str:
        """The name of its lanes."""
        return stored_durable_name(self.record)

    @property
    def settings_name(self) -> str:
        """Those of its topic are its settings, too."""
        return self.record.topic

    @property
    def is_idle(self) -> bool:
        """Never: it collects whether or not somebody is there."""
        return False

    def remove(self, subscription: Subscription) -> None:
        """Deliver no more to a subscription; from now on nobody uses this one."""
        super().remove(subscription)
        if self.host.durables.get(self.record.key) is self:
            self.host.touch_durable(self)

    def covers(self, topic: str) -> bool:
        """Whether it collects what is sent to a topic."""
        if self.pattern is not None:
            return self.pattern.matches(topic)
        return self.record.topic == topic

    def selects(self, message: Message) -> bool:
        """Whether the selector, if there is one, takes a message."""
        return self.selector is None or self.selector.takes(message.headers)

    def offer(self, message: Message) -> None:
        """Take what the selector takes; when full, the oldest message or else this one is lost."""
        size = message.size
        if not self._fits(1, size) and not (size <= self._max_octets and self._would_fit(1, size)):
            # Consumers have what it would have to drop, or it can never have room: that is no
            # reason to drop others.
            self.dropped += 1
            return
        self.put(message)
        self.host.broker.touch(self)
