"""Keys of changed rows over ZeroMQ: a publisher, and a many-to-many forwarder.

Publishing is not durable: subscribers that are not connected miss messages. If no message may be
lost, use a broker (:func:`~stompkit.replication.sinks.forwarders.stomp_sub`). Known losses are
counted. For the format of messages see :mod:`stompkit.replication.workers.messages`.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final, Self

import zmq

from stompkit.replication.model.signals import signal
from stompkit.replication.workers.messages import Key, check_topic, encode_keys, topic_frame

__all__ = ["ZmqProxy", "ZmqPublisher", "zmq_proxy", "zmq_sub"]

_log: Final = logging.getLogger(__name__)

_ACTIONS: Final = ("write", "update", "delete")
#: Time in milliseconds that a waiting thread may hold the socket.
_SLICE_MS: Final = 20

_Context = zmq.Context[zmq.Socket[bytes]]


def zmq_sub(
    bind: str,
    tables: Collection[str],
    *,
    forwarder: bool = False,
    hwm: int = 10_000,
    linger_ms: int = 1_000,
    wait_s: float = 0.0,
) -> ZmqPublisher:
    """Publish the keys of changed rows in ``tables``, by the signals ``T_write`` and so on.

    ``bind`` is the address to bind to, or with ``forwarder`` that of a forwarder to connect to.
    ``tables`` are ``T``, or ``S.T`` for a table of schema ``S``. If a subscriber has ``hwm``
    messages waiting, publishing blocks for ``wait_s`` seconds; then the subscriber misses the
    message, which is counted. ``linger_ms`` is the maximum time in milliseconds that closing waits
    for sent messages.

    Raises ``ValueError`` if ``tables`` is text instead of a list or set of texts, and if ``bind``
    is not a usable address.
    """
    if isinstance(tables, (str, bytes)) or not isinstance(tables, Collection):
        raise ValueError(f"tables are a list or a set of names, and not {tables!r}")
    topics = [check_topic(f"{table}_{action}") for table in tables for action in _ACTIONS]
    publisher = ZmqPublisher(bind, forwarder=forwarder, hwm=hwm, linger_ms=linger_ms, wait_s=wait_s)
    publisher.follow(topics)
    return publisher


class ZmqPublisher:
    """A thread-safe publishing socket; as a context manager it is closed at the end."""

    def __init__(
        self, address: str, *, forwarder: bool, hwm: int, linger_ms: int, wait_s: float
    ) -> None:
        """Bind, or connect to a forwarder; raises ``ValueError``. See :func:`zmq_sub`."""
        #: Number of sent messages.
        self.sent = 0
        #: Number of messages that a subscriber missed, because its queue was full.
        self.dropped = 0
        self._wait_s = wait_s
        self._linger_ms = linger_ms
        self._lock = threading.RLock()
        self._is_closed = False
        self._subscribed: set[bytes] = set()
        self._receivers: list[tuple[str, partial[None]]] = []
        self._context: _Context = zmq.Context()
        #: An XPUB socket, to which SUB sockets subscribe. Use it with :meth:`publish` only, or if
        #: no other thread does, because sockets are not thread-safe.
        self.socket = self._context.socket(zmq.XPUB)
        self.socket.setsockopt(zmq.SNDHWM, hwm)
        self.socket.setsockopt(zmq.XPUB_NODROP, 1)
        try:
            (self.socket.connect if forwarder else self.socket.bind)(address)
        except zmq.ZMQError as error:
            self.close()
            raise ValueError(f"ZeroMQ cannot publish at {address!r}: {error}") from None
        #: Address of the socket; with the chosen port if none was given.
        self.address: Final = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def __enter__(self) -> Self:
        """Return the publisher."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def follow(self, topics: Iterable[str]) -> None:
        """Publish the keys of the signals of these names, until it is closed."""
        for topic in topics:
            receiver = partial(self._receive, topic)
            self._receivers.append((topic, receiver))
            signal(topic).connect(receiver, weak=False)

    def _receive(self, topic: str, key: Key) -> None:
        self.publish(topic, [key])

    def publish(self, topic: str, keys: Iterable[Key]) -> None:
        """Send one message with keys.

        Raises :class:`~stompkit.replication.model.values.InvalidValueError` for an invalid key, and
        RuntimeError when it is closed.
        """
        parts = [topic_frame(check_topic(topic)), encode_keys(topic, keys)]
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the publisher is closed")
            self._note_subscriptions()
            self.sent += 1
            if _send_to_all(self.socket, parts, self._wait_s):
                return
            self.dropped += 1
            is_first = self.dropped == 1
        if is_first:
            _log.warning("%s: a subscriber is too slow, and misses messages", self.address)

    def wait_for_subscriber(self, timeout_s: float, topic: str | None = None) -> bool:
        """Wait for a subscriber, for that topic if one is given; return True if there is one.

        Messages sent before a subscriber has connected do not reach it. A forwarder subscribes when
        one of its own subscribers does.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:
                if self._is_closed:
                    return False
                self._note_subscriptions()
                if self._is_subscribed(topic):
                    return True
                left_ms = int((deadline - time.monotonic()) * 1000)
                if left_ms <= 0:
                    return False
                self.socket.poll(min(left_ms, _SLICE_MS))

    def _is_subscribed(self, topic: str | None) -> bool:
        if topic is None:
            return bool(self._subscribed)
        frame = topic_frame(topic)
        return any(frame.startswith(beginning) for beginning in self._subscribed)

    def _note_subscriptions(self) -> None:
        while self.socket.poll(0):
            said = self.socket.recv()
            if said.startswith(b"\1"):
                self._subscribed.add(said[1:])
            else:
                self._subscribed.discard(said[1:])

    def close(self) -> None:
        """Disconnect from the signals, and close the socket after sending queued messages."""
        for topic, receiver in self._receivers:
            signal(topic).disconnect(receiver)
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self.socket.close(linger=self._linger_ms)
        self._context.term()


def _send_to_all(sender: zmq.Socket[bytes], parts: Sequence[bytes], wait_s: float) -> bool:
    """Send to all subscribers with room; return False if a subscriber had none."""
    try:
        sender.setsockopt(zmq.SNDTIMEO, int(wait_s * 1000))
        sender.send_multipart(parts)
    except zmq.Again:
        # Subscribers with room must still receive it.
        sender.setsockopt(zmq.XPUB_NODROP, 0)
        sender.send_multipart(parts)
        sender.setsockopt(zmq.XPUB_NODROP, 1)
        return False
    return True


def zmq_proxy(frontend: str, backend: str, *, hwm: int = 10_000) -> ZmqProxy:
    """Start a forwarder: publishers connect to ``frontend``, subscribers to ``backend``.

    It runs in a thread until it is closed; ``zmq_proxy(...).wait()`` is a complete program. Raises
    ``ValueError`` for an unusable address.
    """
    return ZmqProxy(frontend, backend, hwm=hwm)


class ZmqProxy:
    """A forwarder (XSUB to XPUB); as a context manager it is closed at the end."""

    def __init__(self, frontend: str, backend: str, *, hwm: int) -> None:
        """Bind both, and start; see :func:`zmq_proxy`."""
        #: Number of messages that a subscriber missed, because its queue was full.
        self.dropped = 0
        self._context: _Context = zmq.Context()
        self._in = self._context.socket(zmq.XSUB)
        self._out = self._context.socket(zmq.XPUB)
        self._in.setsockopt(zmq.RCVHWM, hwm)
        self._out.setsockopt(zmq.SNDHWM, hwm)
        self._out.setsockopt(zmq.XPUB_NODROP, 1)
        self._wakeup, self._waker = socket.socketpair()
        try:
            for side, address in ((self._in, frontend), (self._out, backend)):
                try:
                    side.bind(address)
                except zmq.ZMQError as error:
                    raise ValueError(f"ZeroMQ cannot bind to {address!r}: {error}") from None
        except ValueError:
            self._close_all()
            raise
        #: Address for publishers.
        self.frontend: Final = self._in.getsockopt_string(zmq.LAST_ENDPOINT)
        #: Address for subscribers.
        self.backend: Final = self._out.getsockopt_string(zmq.LAST_ENDPOINT)
        self._thread = threading.Thread(target=self._run, name="stompkit-zmq-proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        """Return the forwarder."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is closed; return True if it is."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Stop, and free the addresses; further calls do nothing."""
        if self._thread.is_alive():
            self._waker.send(b"\0")
            self._thread.join()

    def _run(self) -> None:
        poller = zmq.Poller()
        for each in (self._in, self._out, self._wakeup):
            poller.register(each, zmq.POLLIN)
        try:
            while True:
                ready: dict[Any, int] = dict(poller.poll())
                if self._wakeup.fileno() in ready:
                    return
                if self._out in ready:
                    self._in.send(self._out.recv())
                if self._in in ready and not _send_to_all(
                    self._out, self._in.recv_multipart(), 0.0
                ):
                    self.dropped += 1
        finally:
            self._close_all()

    def _close_all(self) -> None:
        self._in.close(linger=0)
        self._out.close(linger=0)
        self._context.term()
        self._wakeup.close()
        self._waker.close()
