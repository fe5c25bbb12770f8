"""kombu's channel: queues, exchanges and acknowledgements on top of one STOMP connection."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any, Final

from kombu.transport import virtual
from kombu.utils.uuid import uuid

from stompkit.kombu._brokers import UNLIMITED, topic_destination
from stompkit.kombu._messages import is_persistent, payload_of, send_frame
from stompkit.kombu._session import BrokerSession
from stompkit.kombu._sources import Incoming, QueueSource, TopicSource

__all__ = ["Channel"]

#: Maximum number of messages in flight to a consumer without acknowledgements.
_NO_ACK_CREDIT: Final = 100


@dataclass(frozen=True)
class _Reader:
    """A consumer."""

    queue: str
    source: QueueSource | TopicSource
    is_without_ack: bool
    callback: Callable[[Any], object]


class Settlements(virtual.QoS):
    """Messages that were delivered and not yet settled.

    The broker holds them until then, so the process requeues nothing when it ends.
    """

    channel: Channel

    def __init__(self, channel: Channel, prefetch_count: int = 0) -> None:
        """Start empty."""
        super().__init__(channel, prefetch_count)
        self._on_collect.cancel()
        self.incoming: OrderedDict[str, Incoming] = OrderedDict()

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message; ignore one that is settled already."""
        self._settle(delivery_tag, Incoming.ack)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Refuse a message."""
        self._settle(delivery_tag, lambda incoming: incoming.reject(requeue=requeue))

    def restore_unacked(self) -> list[Any]:
        """Put back what is not settled."""
        for tag in list(self.incoming):
            self.reject(tag, requeue=True)
        return []

    def restore_unacked_once(self, stderr: object = None) -> None:
        """Do nothing: the broker requeues messages when the connection ends."""

    def _settle(self, tag: str, how: Callable[[Incoming], object]) -> None:
        incoming = self.incoming.pop(tag, None)
        # Count it before sending to the broker, which may fail.
        super().ack(tag)
        if incoming is not None:
            how(incoming)
        self.channel.connection.wake()


class Channel(virtual.Channel):
    """A channel; all of a connection share its session with the broker."""

    QoS = Settlements
    do_restore = False
    supports_fanout = True
    body_encoding: Any = None
    from_transport_options: Any = ("deadletter_queue",)

    connection: BrokerSession
    qos: Settlements

    def __init__(self, connection: BrokerSession, **kwargs: Any) -> None:
        """Start without consumers."""
        self._readers: OrderedDict[str, _Reader] = OrderedDict()
        self._polled: dict[str, QueueSource] = {}
        self._tags = count(1)
        super().__init__(connection, **kwargs)

    # Publishing.

    def basic_publish(
        self, message: dict[str, Any], exchange: str, routing_key: str, **kwargs: Any
    ) -> None:
        """Send a message to the bound queues, and to the readers of the exchange's topic.

        Only bindings declared on this connection are known.
        """
        message["properties"].setdefault("delivery_info", {}).update(
            exchange=exchange, routing_key=routing_key
        )
        if not exchange:
            self._put(routing_key, message)
            return
        for queue in self._lookup(exchange, routing_key):
            if queue not in self.connection.private:
                self._put(queue, message)
        key = "" if self._type_of(exchange) == "fanout" else routing_key
        transport = self.connection
        destination = topic_destination(transport.options.topic_prefix, exchange, key)
        frame = send_frame(destination, message, transport.broker)
        # A topic stores nothing, so there is no receipt to wait for.
        transport.stomp.send(
            type(frame)("SEND", {**frame.headers, "persistent": "false"}, frame.body)
        )

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        transport = self.connection
        frame = send_frame(transport.destination(queue), message, transport.broker)
        if transport.options.confirm_publish and is_persistent(message):
            transport.stomp.request(frame)
        else:
            transport.stomp.send(frame)

    # Queues.

    def _new_queue(self, queue: str, **kwargs: Any) -> None:
        if kwargs.get("auto_delete") or kwargs.get("exclusive"):
            self.connection.temporary.add(queue)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        transport = self.connection
        if queue not in transport.temporary:
            return
        kind = self.typeof(exchange)
        row = (routing_key, pattern, queue)
        key = "" if self._type_of(exchange) == "fanout" else routing_key
        rest = transport.broker.rest if self._type_of(exchange) == "topic" else None
        destination = topic_destination(transport.options.topic_prefix, exchange, key, rest)
        if queue not in transport.private:
            most = transport.options.max_topic_messages
            transport.private[queue] = TopicSource(transport.stomp, most)
        transport.private[queue].bind(
            (exchange, *row),
            exchange,
            destination,
            lambda given: bool(kind.lookup([row], exchange, given, None)),
        )

    def queue_unbind(
        self,
        queue: str,
        exchange: str = "",
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        """End a binding; the queue keeps its messages."""
        super().queue_unbind(queue, exchange, routing_key, arguments, **kwargs)
        private = self.connection.private.get(queue)
        if private is not None:
            row = self.typeof(exchange).prepare_bind(queue, exchange, routing_key, arguments)
            private.unbind((exchange, *row))

    def _type_of(self, exchange: str) -> str:
        try:
            return str(self.state.exchanges[exchange]["type"])
        except KeyError:
            return "direct"

    def _size(self, queue: str) -> int:
        """Return the number of local messages; STOMP cannot query the broker's queue size."""
        sources: list[QueueSource | TopicSource] = [
            reader.source for reader in self._readers.values() if reader.queue == queue
        ]
        if queue in self._polled:
            sources.append(self._polled[queue])
        private = self.connection.private.get(queue)
        if private is not None:
            return len(private)
        return sum(len(source) for source in sources)

    def _purge(self, queue: str) -> int:
        """Read until no message has arrived for a while."""
        transport = self.connection
        private = transport.private.get(queue)
        if private is not None:
            return private.clear()
        gone = count()
        destination = transport.destination(queue)
        headers = {"destination": destination, "ack": "auto"}
        name = transport.stomp.subscribe(headers, lambda frame: next(gone))
        while True:
            wakeups = transport.stomp.wakeup.wakeups
            transport.stomp.check()
            if not transport.stomp.wakeup.wait(wakeups, transport.options.quiet_s):
                break
        transport.stomp.unsubscribe(name, destination)
        transport.wake()
        return next(gone)

    def queue_delete(
        self,
        queue: str,
        if_unused: bool = False,
        if_empty: bool = False,
        **kwargs: Any,
    ) -> None:
        """Empty a queue and forget its bindings; brokers remove queues by themselves.

        With a condition, a queue of the broker stays as it is: STOMP cannot ask for its messages
        and consumers, and to delete nothing loses nothing.
        """
        transport = self.connection
        if if_empty or if_unused:
            fed = transport.private.get(queue)
            if fed is None or (if_empty and len(fed)) or (if_unused and transport.is_read(queue)):
                return
        is_temporary = queue in transport.temporary
        private = transport.forget_queue(queue)
        if private is not None:
            private.close()
        elif not is_temporary:
            self._purge(queue)

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Forget an exchange and its bindings; its queues keep their messages."""
        known = self.state.exchanges.get(exchange)
        if known is None or (if_unused and known["table"]):
            return
        for bound in [each for each in self.state.bindings if each.exchange == exchange]:
            self.queue_unbind(bound.queue, exchange, bound.routing_key)
        del self.state.exchanges[exchange]

    def after_reply_message_received(self, queue: str) -> None:
        """End a reply queue, unless its consumer has ended it already."""
        if queue in self.connection.temporary:
            self.queue_delete(queue)

    # Consuming.

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Callable[[Any], object],
        consumer_tag: str | None,
        **kwargs: Any,
    ) -> str:
        """Start consuming from a queue; ``drain_events`` delivers the messages."""
        tag = consumer_tag or uuid()
        source: QueueSource | TopicSource | None = self.connection.private.get(queue)
        if source is None:
            credit = _NO_ACK_CREDIT if no_ack else self.qos.prefetch_count or UNLIMITED
            source = self._source(queue, credit)
        self._readers[tag] = _Reader(queue, source, no_ack, callback)
        self._tag_to_queue[tag] = queue
        self.connection.wake()
        return tag

    def _source(self, queue: str, credit: int) -> QueueSource:
        transport = self.connection
        destination = transport.destination(queue)
        connection = transport.consuming_connection()
        return QueueSource(connection, transport.broker, destination, credit, transport.leave)

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop consuming; delivered messages can still be acknowledged."""
        reader = self._readers.pop(consumer_tag, None)
        self._tag_to_queue.pop(consumer_tag, None)
        if reader is None or not self.connection.is_usable:
            return
        if isinstance(reader.source, TopicSource):
            self.connection.release(reader.queue)
        else:
            reader.source.retire()

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """Return the next message of a queue, or ``None`` if none has arrived for a while.

        From then on, one message of the queue is prefetched until the channel is closed.
        """
        source: QueueSource | TopicSource | None = self.connection.private.get(queue)
        if source is None:
            if queue not in self._polled:
                self._polled[queue] = self._source(queue, 1)
            source = self._polled[queue]
        if isinstance(source, QueueSource) and source.is_exhausted:
            source.widen(source.credit + 1)
        incoming = self._awaited(source)
        return None if incoming is None else self._noted(incoming, queue, no_ack=no_ack)

    def _awaited(self, source: QueueSource | TopicSource) -> Incoming | None:
        stomp = self.connection.stomp
        until = monotonic() + self.connection.options.quiet_s
        while True:
            wakeups = stomp.wakeup.wakeups
            self.connection.check()
            incoming = source.take()
            if incoming is not None or not stomp.wakeup.wait(
                wakeups, max(0.0, until - monotonic())
            ):
                return incoming

    def basic_qos(
        self,
        prefetch_size: int = 0,
        prefetch_count: int = 0,
        apply_global: bool = False,
    ) -> None:
        """Change the maximum number of unacknowledged messages."""
        self.qos.prefetch_count = prefetch_count
        self.connection.wake()

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge a message; with ``multiple``, all messages before it as well."""
        # The tag of a settled message has no place among those that wait.
        is_waiting = delivery_tag in self.qos.incoming
        for tag in list(self.qos.incoming) if multiple and is_waiting else ():
            if tag == delivery_tag:
                break
            self.qos.ack(tag)
        self.qos.ack(delivery_tag)

    @property
    def is_consuming(self) -> bool:
        """True if the channel has a consumer."""
        return bool(self._readers)

    def deliver_one(self) -> bool:
        """Deliver the next message to its consumer; return True if there was one."""
        for tag, reader in list(self._readers.items()):
            if not reader.is_without_ack and not self.qos.can_consume():
                continue
            incoming = reader.source.take()
            if incoming is None:
                self._widen(reader)
                continue
            self._readers.move_to_end(tag)
            message = self._noted(incoming, reader.queue, no_ack=reader.is_without_ack)
            reader.callback(message)
            return True
        return False

    def _widen(self, reader: _Reader) -> None:
        """Increase the credit if the consumer's prefetch exceeds what the broker knows.

        Celery raises the prefetch by one for each task with an ETA. Each step is a further
        subscription, so a step adds at least a quarter.
        """
        source = reader.source
        if isinstance(source, QueueSource) and not reader.is_without_ack and source.is_exhausted:
            wanted = self.qos.prefetch_count or 2 * source.credit
            if wanted > source.credit:
                source.widen(max(wanted, source.credit + source.credit // 4))

    def _noted(self, incoming: Incoming, queue: str, *, no_ack: bool) -> Any:
        tag = f"{self.channel_id}.{next(self._tags)}"
        message = self.Message(payload_of(incoming.frame, queue, tag), channel=self)
        if no_ack:
            incoming.ack()
        else:
            self.qos.append(message, tag)
            self.qos.incoming[tag] = incoming
        return message

    def close(self) -> None:
        """Close the channel; its unacknowledged messages are requeued."""
        if self.closed:
            return
        self.closed = True
        transport = self.connection
        readers = list(self._readers.values())
        self._readers.clear()
        try:
            if transport.is_usable:
                for reader in readers:
                    if isinstance(reader.source, TopicSource):
                        transport.release(reader.queue)
                    else:
                        reader.source.close()
                for source in self._polled.values():
                    source.close()
        finally:
            transport.close_channel(self)
