"""Connections of a transport to its broker, and the options for them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Self

from kombu.connection import Connection
from kombu.transport import virtual

import stompkit
from stompkit.frames import ProtocolError
from stompkit.kombu._brokers import BROKERS, Broker, Return, broker_of, queue_destination
from stompkit.kombu._connection import Address, ConnectionLostError, StompConnection
from stompkit.kombu._sources import TopicSource
from stompkit.kombu._tls import tls_context

if TYPE_CHECKING:
    from kombu.asynchronous import Hub

__all__ = ["BrokerSession", "Options"]

_PORT: Final = 61613
_CONNECT_S: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options from ``transport_options``; other entries, which are for kombu, are ignored."""

    broker: str = ""
    """Name of the broker; empty to detect it from its ``server`` header."""
    confirm_publish: bool = True
    """True to wait for the receipt of each persistent message."""
    answer_s: float = 60.0
    """Maximum time in seconds to wait for a receipt."""
    heartbeat_s: float = 10.0
    """Heart-beat interval in seconds, in both directions; 0 disables heart-beats."""
    quiet_s: float = 1.0
    """Time in seconds without messages after which a queue is considered empty."""
    queue_prefix: str = "/queue/"
    topic_prefix: str = "/topic/"
    max_topic_messages: int = 10_000
    """Maximum number of unread messages of a topic; beyond it, the oldest are dropped."""

    @classmethod
    def of(cls, given: dict[str, Any]) -> Options:
        """Parse the options; raises ``ValueError`` for an unknown broker."""
        known = {each.name for each in fields(cls)}
        options = cls(**{name: value for name, value in given.items() if name in known})
        if options.broker and options.broker not in BROKERS:
            raise ValueError(
                f"transport option broker is {options.broker!r}; known are {', '.join(BROKERS)}"
            )
        return options


class BrokerSession(virtual.Transport):
    """The part of a transport that connects: one session, which all channels share."""

    default_port = _PORT  # type: ignore[assignment]
    driver_type = "stomp"
    driver_name = "stompkit"
    connection_errors: Any = (OSError, ProtocolError)
    implements = virtual.Transport.implements.extend(
        asynchronous=True,
        exchange_type=frozenset(["direct", "topic", "fanout"]),
        # The connection's thread sends heart-beats, so kombu does not need to.
        heartbeats=False,
    )
    #: True to use TLS unless the options say otherwise.
    is_secure = False

    def __init__(self, client: Connection, **kwargs: Any) -> None:
        """Read the options; nothing is connected yet."""
        super().__init__(client, **kwargs)
        self.options = Options.of(client.transport_options or {})
        self._stomp: StompConnection | None = None
        #: Further connections, for consumers that need their own.
        self._further: list[StompConnection] = []
        self._loop: Hub | None = None
        self.broker: Broker = BROKERS["other"]
        #: Queues that end with their consumer, and those of them that are fed by topics.
        self.temporary: set[str] = set()
        self.private: dict[str, TopicSource] = {}

    def driver_version(self) -> str:
        """Return the version of this package."""
        return stompkit.__version__

    @property
    def stomp(self) -> StompConnection:
        """The connection; raises :class:`ConnectionLostError` if there is none."""
        if self._stomp is None:
            raise ConnectionLostError("the connection is closed")
        return self._stomp

    @property
    def is_usable(self) -> bool:
        """True if messages can be sent."""
        return bool(self._connections) and all(each.is_alive for each in self._connections)

    @property
    def _connections(self) -> list[StompConnection]:
        return [] if self._stomp is None else [self._stomp, *self._further]

    def check(self) -> None:
        """Raise :class:`ConnectionLostError` if a connection has ended."""
        for each in self._connections:
            each.check()

    def consuming_connection(self) -> StompConnection:
        """Return the connection for one more consumer; raises :class:`ConnectionLostError`."""
        if self.broker.returns is not Return.BY_CLOSING:
            return self.stomp
        further = StompConnection(self._address(), self.stomp.wakeup)
        self._further.append(further)
        return further

    def leave(self, connection: StompConnection) -> None:
        """Close a consumer's own connection."""
        if connection in self._further:
            self._further.remove(connection)
            connection.close()

    # A connection's life.

    def establish_connection(self) -> Self:
        """Connect and log in; raises :class:`ConnectionLostError`."""
        # kombu reconnects with the same transport, without closing the lost connection. Consumers
        # may have had their own connections, and channels hold messages of the lost session.
        self.close_connection(self)
        self._stomp = StompConnection(self._address())
        name = self.options.broker
        self.broker = BROKERS[name] if name else broker_of(self._stomp.server)
        return self

    def _address(self) -> Address:
        client: Any = self.client
        passcode = client.password() if callable(client.password) else client.password
        given = client.ssl or self.is_secure
        return Address(
            host=client.hostname or "localhost",
            port=int(client.port or self.default_port),
            login=client.userid or None,
            passcode=passcode or None,
            virtual_host=client.virtual_host or "/",
            tls=tls_context(given) if given else None,
            server_name=given.get("server_hostname") if isinstance(given, dict) else None,
            connect_s=client.connect_timeout or _CONNECT_S,
            answer_s=self.options.answer_s,
            heartbeat_s=self.options.heartbeat_s,
        )

    def close_connection(self, connection: object) -> None:
        """Close; the broker requeues unacknowledged messages."""
        stomp, self._stomp = self._stomp, None
        further, self._further = self._further, []
        for each in further:
            each.close()
        if stomp is not None:
            if self._loop is not None:
                self._loop.remove_reader(stomp.wakeup.fileno())
                self._loop = None
            stomp.close()
        # Without their bindings, kombu binds them again when they are declared again.
        for queue in list(self.temporary):
            self.forget_queue(queue)
        for channel in list(self.channels):
            channel.close()

    def verify_connection(self, connection: object) -> bool:
        """Return True if the connection is alive, or a consumer has not received its failure yet.

        On False, kombu reconnects by itself, and existing consumers and the event loop of a worker
        would wait forever. They have to receive an error first. Without a consumer, as in a pool of
        producers, a lost connection is replaced before it is used.
        """
        connections = self._connections
        is_consuming = self._loop is not None or any(each.is_consuming for each in self.channels)
        return bool(connections) and all(
            each.is_alive or (is_consuming and not each.is_reported) for each in connections
        )

    def destination(self, queue: str) -> str:
        """Return the destination of a queue."""
        return queue_destination(self.options.queue_prefix, queue)

    def forget_queue(self, queue: str) -> TopicSource | None:
        """Forget a queue and its bindings; return the source that topics have fed it from."""
        exchanges: dict[str, Any] = self.state.exchanges or {}
        for exchange in exchanges.values():
            exchange["table"][:] = [row for row in exchange["table"] if row[2] != queue]
        self.state.queue_bindings_delete(queue)
        self.temporary.discard(queue)
        return self.private.pop(queue, None)

    def is_read(self, queue: str) -> bool:
        """Return True if a consumer of this connection reads a queue."""
        return any(queue in channel._tag_to_queue.values() for channel in self.channels)

    def release(self, queue: str) -> None:
        """End a queue that is fed by topics, unless another consumer reads it."""
        if self.is_read(queue):
            return
        source = self.private.get(queue)
        if source is not None and self.channels:
            self.channels[0].queue_delete(queue)

    def wake(self) -> None:
        """Wake all waiters: a message may be deliverable that was not before."""
        if self._stomp is not None:
            self._stomp.wakeup.wake()
