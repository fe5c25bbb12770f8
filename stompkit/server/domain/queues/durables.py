"""Durable subscriptions of topics: a queue collects messages while the subscriber is away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote

from stompkit.server.domain.deliveries import Subscription
from stompkit.server.domain.destinations import HostBase
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.messages import Message
from stompkit.server.domain.names import DURABLES, is_pattern
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.session.headers import flag
from stompkit.server.interfaces import LaneState
from stompkit.server.selectors import Selector
from stompkit.server.settings.broker import Policy
from stompkit.server.stores.records import DurableRecord

__all__ = [
    "DurableQueue",
    "durable_key",
    "durable_name",
    "named_durable_key",
    "stored_durable_name",
]


#: Headers of SUBSCRIBE that name a durable subscription of a client with a client-id.
_NAMES = (
    "activemq.subscriptionName",
    "activemq.subcriptionName",
    "durable-subscription-name",
    "durable-subscriber-name",
)


def durable_key(headers: Mapping[str, str], client_id: str | None) -> tuple[str, bool] | None:
    """Return the key of the durable subscription named by SUBSCRIBE or UNSUBSCRIBE.

    Return ``None`` for an ordinary subscription. The second value is True if several clients can
    share it. That is the case in RabbitMQ's form, with ``durable:true``, ``auto-delete:false`` and
    an ``id``. Clients of ActiveMQ and Artemis give a name, and a ``client-id`` in CONNECT. Raises
    :class:`RefusedError` if the headers are incomplete.
    """
    for header in _NAMES:
        if header in headers:
            if not client_id:
                raise RefusedError(
                    f"{header} needs a client-id header in CONNECT", "missing-header"
                )
            return f"{client_id}\n{headers[header]}", False
    is_durable, is_persistent = flag(headers, "durable"), flag(headers, "persistent")
    if (is_durable or is_persistent) and not flag(headers, "auto-delete"):
        if "id" not in headers:
            raise RefusedError("a durable subscription needs an id", "missing-header")
        name = headers.get("x-queue-name", headers["id"])
        return f"\n{name}", True
    return None


def durable_name(key: str) -> str:
    """Return the name of the queue of a durable subscription; it is unique for each key."""
    client_id, _, name = key.partition("\n")
    return f"{DURABLES}{quote(client_id, safe='', errors='surrogateescape')}/{name}"


def named_durable_key(name: str) -> str | None:
    """Return the key of the durable subscription with a queue name; ``None`` for other names."""
    if not name.startswith(DURABLES):
        return None
    client_id, _, own = name.removeprefix(DURABLES).partition("/")
    return f"{unquote(client_id, errors='surrogateescape')}\n{own}"


def stored_durable_name(record: DurableRecord) -> str:
    """Return the name of a durable subscription's lanes in the store.

    It is unique, also among earlier subscriptions of the same name.
    """
    name = durable_name(record.key)
    if not record.generation:
        return name
    # A colon would be quoted in the first part of the name.
    return f"{DURABLES}{record.generation}:{name.removeprefix(DURABLES)}"


class DurableQueue(Queue):
    """Messages of a topic, or of all topics that match a pattern, for a durable subscription."""

    def __init__(
        self,
        record: DurableRecord,
        policy: Policy,
        host: HostBase,
        states: Sequence[LaneState] = (),
    ) -> None:
        """Start collecting."""
        super().__init__(durable_name(record.key), policy, host, states)
        self.record = record
        self.pattern = host.pattern(record.topic) if is_pattern(record.topic) else None
        self.selector = Selector(record.selector) if record.selector else None
        #: The subscription previously of this name, which collects until the store has the change.
        self.replaced: DurableQueue | None = None
        scheduler = host.scheduler
        #: When it was last used, by the steady clock: the system's time may be set meanwhile.
        self.used = scheduler.now - max(0.0, scheduler.wall - record.used_at)

    def _read_policy(self) -> None:
        super()._read_policy()
        # Senders to its topic must not be refused because this queue is full.
        self._is_trimmed = True

    @property
    def charged_to(self) -> str:
        """The user whose limits count it and its dead letters."""
        return self.record.owner or ""

    def check_user(self, user: str | None) -> None:
        """Raise :class:`RefusedError` for a user who does not own it.

        ``None`` is an unauthenticated user, who may do everything.
        """
        owner = self.record.owner
        if user is not None and owner is not None and user != owner:
            raise RefusedError("the durable subscription belongs to another user", "not-authorised")

    @property
    def stored_as(self) -> str:
        """The name of its lanes."""
        return stored_durable_name(self.record)

    @property
    def settings_name(self) -> str:
        """The settings of its topic apply."""
        return self.record.topic

    @property
    def is_idle(self) -> bool:
        """Always False: it collects even without subscribers."""
        return False

    def remove(self, subscription: Subscription) -> None:
        """Stop deliveries to a subscription, and record the time of last use."""
        super().remove(subscription)
        self.host.touch_durable(self)

    def covers(self, topic: str) -> bool:
        """Return True if it collects messages sent to a topic."""
        if self.pattern is not None:
            return self.pattern.matches(topic)
        return self.record.topic == topic

    def selects(self, message: Message) -> bool:
        """Return True if the selector, if there is one, takes a message."""
        return self.selector is None or self.selector.takes(message.headers)

    def offer(self, message: Message) -> None:
        """Collect a message that the selector takes; if full, drop the oldest ones or this one."""
        size = message.size
        if not self._fits(1, size) and not (size <= self._max_octets and self._would_fit(1, size)):
            # Consumers hold the messages to drop, or there can never be room: dropping others does
            # not help.
            self.dropped += 1
            return
        # Its lifetime here is that of this subscription: the message is not its own.
        self.put(message.copy() if self._ttl_s else message)
        self.host.scheduler.touch(self)
