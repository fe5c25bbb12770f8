"""Message sources of kombu's queues: queues of the broker, or topics."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Final

from kombu.log import get_logger

from stompkit.frames import Frame
from stompkit.kombu._brokers import Broker, Return
from stompkit.kombu._connection import StompConnection
from stompkit.kombu._messages import copy_of, route_of

__all__ = ["Incoming", "QueueSource", "TopicSource"]

_LOGGER: Final = get_logger(__name__)


class Incoming:
    """A delivered message, until it is settled."""

    def __init__(self, frame: Frame, source: QueueSource | TopicSource) -> None:
        """Store the frame and its source."""
        self.frame = frame
        self._source = source

    def ack(self) -> None:
        """Acknowledge the message; raises :class:`ConnectionLostError`."""
        self._source.ack(self)

    def reject(self, *, requeue: bool) -> None:
        """Requeue the message, or reject it, which the broker handles as any refused message."""
        self._source.reject(self, requeue=requeue)


class QueueSource:
    """A queue of the broker, with one or more subscriptions and individual acknowledgements."""

    def __init__(
        self,
        connection: StompConnection,
        broker: Broker,
        destination: str,
        credit: int,
        leave: Callable[[StompConnection], object],
    ) -> None:
        """Subscribe; ``credit`` is the maximum number of unacknowledged messages.

        ``leave`` closes the connection; it is called at the end if only this queue uses it.
        """
        self._connection = connection
        self._leave = leave
        self._broker = broker
        self._destination = destination
        self._ready: deque[Frame] = deque()
        self._taken: dict[int, Incoming] = {}
        self._names: list[str] = []
        self._is_retired = self._is_closed = False
        self.credit = 0
        self.widen(credit)

    def __len__(self) -> int:
        """Return the number of local messages that are not taken yet."""
        return 0 if self._is_retired else len(self._ready)

    def widen(self, credit: int) -> None:
        """Raise the credit to ``credit`` messages: subscribe once more for the difference."""
        more = credit - self.credit
        if more <= 0:
            return
        headers = {"destination": self._destination, "ack": "client-individual"}
        if self._connection.version == "1.0":
            headers["ack"] = "client"
        if self._broker.prefetch_header:
            headers[self._broker.prefetch_header] = str(more)
        self.credit += more
        self._names.append(self._connection.subscribe(headers, self._ready.append))

    @property
    def is_exhausted(self) -> bool:
        """True if the broker sends nothing more until a message is acknowledged."""
        return len(self._taken) >= self.credit and not self._ready

    def take(self) -> Incoming | None:
        """Return the next message, if there is one."""
        if self._is_retired:
            return None
        try:
            frame = self._ready.popleft()
        except IndexError:
            return None
        incoming = Incoming(frame, self)
        self._taken[id(incoming)] = incoming
        return incoming

    def ack(self, incoming: Incoming) -> None:
        """Acknowledge a message."""
        self._connection.send(self._settling("ACK", incoming.frame))
        self._settled(incoming)

    def reject(self, incoming: Incoming, *, requeue: bool) -> None:
        """Refuse a message."""
        frame = incoming.frame
        if not requeue:
            self._connection.send(self._settling("NACK", frame, requeue="false"))
        elif self._broker.nack_requeues:
            self._connection.send(self._settling("NACK", frame))
        else:
            # Between the two requests the message exists twice, rather than not at all.
            self._connection.request(copy_of(frame))
            self._connection.send(self._settling("ACK", frame))
        self._settled(incoming)

    def retire(self) -> None:
        """Stop taking messages; taken messages can still be settled."""
        if self._is_retired:
            return
        self._is_retired = True
        # Other brokers also end the deliveries of a subscription when it ends.
        if not self._taken or self._broker.returns is Return.NACK_AFTERWARDS:
            self._end([])

    def close(self) -> None:
        """Return all unsettled messages to the queue."""
        self._is_retired = True
        taken = [incoming.frame for incoming in self._taken.values()]
        self._taken.clear()
        self._end(taken)

    def _settled(self, incoming: Incoming) -> None:
        self._taken.pop(id(incoming), None)
        if self._is_retired and not self._taken:
            self._end([])

    def _end(self, taken: list[Frame]) -> None:
        """End the subscriptions unless they have ended, and return messages to the queue."""
        returns = self._broker.returns
        if not self._is_closed:
            self._is_closed = True
            if returns is Return.BY_CLOSING:
                self._leave(self._connection)
                return
            for name in self._names:
                self._connection.unsubscribe(name, self._destination)
            # No more messages arrive from here on.
            taken = [*taken, *self._ready]
        if returns is Return.NACK_AFTERWARDS:
            for frame in taken:
                self._connection.send(self._settling("NACK", frame))

    def _settling(self, command: str, frame: Frame, **more: str) -> Frame:
        given = frame.headers
        version = self._connection.version
        if command == "NACK" and version == "1.0":
            command = "ACK"  # the only command for it
        if version == "1.2":
            return Frame(command, {"id": given.get("ack", ""), **more})
        headers = {"message-id": given.get("message-id", "")}
        if version == "1.1":
            headers["subscription"] = given.get("subscription", "")
        return Frame(command, {**headers, **more})


class TopicSource:
    """A queue of this connection only, fed by topics; its messages are not acknowledged."""

    def __init__(self, connection: StompConnection, most: int) -> None:
        """Keep up to ``most`` messages that are not taken yet."""
        self._connection = connection
        self._most = most
        self._ready: deque[Frame] = deque()
        #: The exchange of each binding, and its test of routing keys, in the order of bindings.
        self._bindings: dict[Hashable, tuple[str, Callable[[str], bool]]] = {}
        #: The subscription of each binding, and its destination.
        self._subscriptions: dict[Hashable, tuple[str, str]] = {}
        self._has_dropped = False

    def __len__(self) -> int:
        """Return the number of messages that are not taken yet."""
        return len(self._ready)

    def bind(
        self, binding: Hashable, exchange: str, destination: str, takes: Callable[[str], bool]
    ) -> None:
        """Subscribe to an exchange; keep messages for whose routing key ``takes`` returns True."""
        # A new dict, since the connection's thread may iterate over the old one.
        self._bindings = {**self._bindings, binding: (exchange, takes)}

        def on_message(frame: Frame) -> None:
            # A message that matches two bindings arrives twice; only the first binding counts.
            if self._first_binding(*route_of(frame)) == binding:
                self._keep(frame)

        headers = {"destination": destination, "ack": "auto"}
        name = self._connection.subscribe(headers, on_message)
        self._subscriptions[binding] = (name, destination)

    def unbind(self, binding: Hashable) -> None:
        """End the subscription of a binding; messages that have arrived stay."""
        subscription = self._subscriptions.pop(binding, None)
        if subscription is not None:
            # Until the broker has confirmed it, the binding still counts for what arrives.
            self._connection.unsubscribe(*subscription)
            self._bindings = {key: of for key, of in self._bindings.items() if key != binding}

    def take(self) -> Incoming | None:
        """Return the next message, if there is one."""
        try:
            return Incoming(self._ready.popleft(), self)
        except IndexError:
            return None

    def ack(self, incoming: Incoming) -> None:
        """Do nothing: topic messages are not acknowledged."""

    def reject(self, incoming: Incoming, *, requeue: bool) -> None:
        """Requeue a message locally, or drop it."""
        if requeue:
            incoming.frame.headers["redelivered"] = "true"
            self._ready.appendleft(incoming.frame)
            self._connection.wakeup.wake()

    def clear(self) -> int:
        """Drop the messages, and return their number."""
        gone = len(self._ready)
        self._ready.clear()
        return gone

    def close(self) -> None:
        """End the subscriptions."""
        while self._subscriptions:
            _, subscription = self._subscriptions.popitem()
            self._connection.unsubscribe(*subscription)

    retire = close

    def _first_binding(self, exchange: str, key: str) -> Hashable:
        for binding, (bound, takes) in self._bindings.items():
            if bound == exchange and takes(key):
                return binding
        return None

    def _keep(self, frame: Frame) -> None:
        if len(self._ready) >= self._most:
            self._ready.popleft()
            if not self._has_dropped:
                self._has_dropped = True
                _LOGGER.warning(
                    "more than %d messages of a topic wait to be read: the oldest are dropped",
                    self._most,
                )
        self._ready.append(frame)
