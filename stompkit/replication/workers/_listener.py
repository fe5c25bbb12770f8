"""Receives messages over ZeroMQ, in its own thread."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

import zmq

from stompkit.replication.workers.messages import topic_frame

__all__ = ["Listener"]

_log: Final = logging.getLogger(__name__)

#: Time in milliseconds of a last poll before a publisher is considered silent.
_LOOK_MS: Final = 50


class Listener:
    """Connects to publishers, and reconnects to those that have been silent for long.

    A connection can be dead without either side noticing, for example if a firewall has dropped it
    or a host has failed. Then only a new connection helps.
    """

    def __init__(
        self,
        receive: Callable[[Sequence[bytes]], None],
        topics: Collection[str],
        *,
        reconnect_s: float,
        hwm: int,
    ) -> None:
        """Start without addresses; ``receive`` is called in the listener's thread.

        ``reconnect_s`` is the time in seconds without messages before a reconnect; ``hwm`` bounds
        the messages that wait in ZeroMQ.
        """
        self.reconnects = 0
        self._receive = receive
        self._frames = [topic_frame(topic) for topic in topics]
        self._reconnect_s = reconnect_s
        self._hwm = hwm
        self._addresses: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._is_closed = False
        # Created in the process that uses it, because a context does not survive a fork.
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._wakeup, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="stompkit-zmq", daemon=True)
        self._thread.start()

    def listen(self, addresses: Sequence[str]) -> None:
        """Replace the addresses; raises ``ValueError`` for an invalid address."""
        with self._context.socket(zmq.SUB) as trial:
            for address in addresses:
                try:
                    trial.connect(address)
                except zmq.ZMQError as error:
                    raise ValueError(f"ZeroMQ cannot connect to {address!r}: {error}") from None
        with self._lock:
            self._addresses = tuple(addresses)
        self._waker.send(b"\0")

    def close(self) -> None:
        """Stop receiving; waits until the current message is accepted or refused."""
        with self._lock:
            self._is_closed = True
        self._waker.send(b"\0")
        self._thread.join()
        self._context.term()
        self._wakeup.close()
        self._waker.close()

    # The thread.

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._is_closed:
                    return
                addresses = self._addresses
            subscriber = self._connect(addresses)
            try:
                is_silent = self._receive_all(subscriber)
            except Exception:
                if not self._is_closed:
                    _log.exception("what has come over ZeroMQ could not be taken")
                continue
            finally:
                subscriber.close(linger=0)
            if is_silent:
                self.reconnects += 1
                _log.info("%s: silent for %g s; connecting again", addresses, self._reconnect_s)

    def _connect(self, addresses: Sequence[str]) -> zmq.Socket[bytes]:
        made = self._context.socket(zmq.SUB)
        made.setsockopt(zmq.RCVHWM, self._hwm)
        made.setsockopt(zmq.TCP_KEEPALIVE, 1)
        for frame in self._frames:
            made.setsockopt(zmq.SUBSCRIBE, frame)
        for address in addresses:
            made.connect(address)
        return made

    def _receive_all(self, subscriber: zmq.Socket[bytes]) -> bool:
        """Receive until a command arrives, or until the publisher is silent for too long (True)."""
        poller = zmq.Poller()
        poller.register(subscriber, zmq.POLLIN)
        poller.register(self._wakeup, zmq.POLLIN)
        silent_from = time.monotonic()
        while True:
            left = silent_from + self._reconnect_s - time.monotonic()
            # Messages that arrived while this process was suspended are read before silence is
            # assessed.
            ready = dict(poller.poll(_LOOK_MS if left <= 0 else int(left * 1000) + 1))
            if left <= 0 and not ready:
                return True
            if self._wakeup.fileno() in ready:
                self._wakeup.recv(64)
                return False
            if subscriber in ready:
                self._receive(subscriber.recv_multipart())
                silent_from = time.monotonic()
