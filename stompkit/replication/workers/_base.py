"""Common functions of replicators: topics, sources of keys, and shutdown."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, Self

from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.workers._intake import Intake
from stompkit.replication.workers._signals import halting
from stompkit.replication.workers._sources import BrokerMessage, BrokerSource, Poison, Pump
from stompkit.replication.workers._subqueue import SubQueue
from stompkit.replication.workers._types import ReplicatorStats, Unfinished
from stompkit.replication.workers.messages import Key

if TYPE_CHECKING:
    from stompkit.replication.workers._listener import Listener

__all__ = ["Replicator"]

_log: Final = logging.getLogger(__name__)


class Replicator:
    """Runs callbacks with the keys of changed rows.

    Topics are names of row signals, such as ``users_update`` or ``shop.users_update``. Keys come
    from ZeroMQ (``listen``), from a broker (:meth:`run_from`), from the publishers of this process
    (:meth:`connect`), or by :meth:`feed` and :meth:`submit`.

    Use :meth:`start` and later :meth:`stop`; or :meth:`run` for both; or a ``with`` block. A
    stopped replicator cannot be started again.
    """

    def __init__(
        self,
        listen: str | Sequence[str] | None = None,
        *,
        name: str,
        reconnect_s: float,
        hwm: int,
    ) -> None:
        """Configure; nothing runs or is connected before :meth:`start`."""
        self.name: Final = name
        self._addresses = _addresses(listen)
        self._reconnect_s = reconnect_s
        self._hwm = hwm
        self._intake: Final = Intake(name)
        self._listener: Listener | None = None
        self._pump: Pump | None = None
        self._lock = threading.RLock()
        self._is_started = self._is_stopping = False
        self._stopped: Future[list[Unfinished]] = Future()
        self._halt: Callable[[], None] = _nothing

    def __repr__(self) -> str:
        """Show its name and its topics."""
        return f"<{type(self).__name__} {self.name}: {', '.join(self._intake.topics)}>"

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop; after an exception, without waiting for the backlog."""
        self.stop(30.0 if kind is None else 0.0)

    def _add_handler(
        self, topics: Sequence[str], make: Callable[[str], Sequence[SubQueue]]
    ) -> None:
        if self._is_started:
            raise RuntimeError("callbacks are added before the replicator is started")
        self._intake.add_handler(topics, make)

    # Sources of keys.

    @property
    def listen(self) -> tuple[str, ...]:
        """Addresses of publishers over ZeroMQ; they can be set at any time.

        While the replicator runs, setting an invalid address raises ``ValueError``.
        """
        return self._addresses

    @listen.setter
    def listen(self, addresses: str | Sequence[str] | None) -> None:
        wanted = _addresses(addresses)
        with self._lock:
            if self._is_started and not self._is_stopping:
                self._listen(wanted)
            self._addresses = wanted

    def _listen(self, addresses: Sequence[str]) -> None:
        if self._listener is None:
            if not addresses:
                return
            # Workers, and programs with other sources, do not need pyzmq.
            from stompkit.replication.workers._listener import Listener

            self._listener = Listener(
                self._intake.take_parts,
                self._intake.topics,
                reconnect_s=self._reconnect_s,
                hwm=self._hwm,
            )
        self._listener.listen(addresses)

    def connect(self) -> None:
        """Receive the changes of all publishers in this process, until :meth:`stop`.

        A publisher's checkpoint advances when the callbacks are done, so changes interrupted by a
        crash are published again.
        """
        CHANGESET.connect(self._intake.submit_changeset, weak=False)

    def feed(self, topic: str, keys: Iterable[Key]) -> None:
        """Queue keys for the callbacks; blocks while the backlog of one of their workers is full.

        A topic without a callback is counted and logged once. Raises
        :class:`ReplicatorStoppedError`, RuntimeError before :meth:`start`, and ``ValueError`` for
        an invalid key.
        """
        self._intake.put([(topic, key) for key in _keys(keys)])

    def submit(self, topic: str, keys: Iterable[Key]) -> Future[None]:
        """Queue keys as :meth:`feed` does; return a future that is done with all callbacks.

        Keys that were given up count as done. The future fails with :class:`ReplicatorStoppedError`
        if the replicator is stopped before.
        """
        return self._intake.submit([(topic, key) for key in _keys(keys)])

    # Lifecycle.

    def start(self, timeout_s: float = 60.0) -> None:
        """Start the workers, wait until they are ready, and then connect.

        Raises ``ValueError`` for a callback that its workers cannot import,
        :class:`WorkerUnusableError` if a worker cannot be started, TimeoutError, and RuntimeError
        on the second call.
        """
        with self._lock:
            if self._is_started or self._is_stopping:
                raise RuntimeError("a replicator is started once")
            self._is_started = True
        atexit.register(self._kill)
        deadline = time.monotonic() + timeout_s
        try:
            self._intake.begin()
            for subqueue in self._intake.subqueues():
                subqueue.start()
            for subqueue in self._intake.subqueues():
                subqueue.ready.result(max(deadline - time.monotonic(), 0.0))
            with self._lock:
                if not self._is_stopping:
                    self._listen(self._addresses)
        except BaseException:
            self.stop(0.0)
            raise

    def stop(self, timeout_s: float = 30.0) -> list[Unfinished]:
        """Stop receiving, finish the waiting keys, and end; return the unfinished keys.

        Keys that wait for a retry are tried once more, immediately. Callbacks that still run after
        ``timeout_s`` seconds are killed. Returned keys are not acknowledged to a broker, nor
        confirmed to a publisher, so the source delivers them again. The method is thread-safe and
        idempotent. It must not be called by ``dead_letter`` or ``poison``, because it waits for
        them.
        """
        with self._lock:
            is_first = not self._is_stopping
            self._is_stopping = True
        if not is_first:
            return self._stopped.result()
        try:
            unfinished = self._stop(time.monotonic() + timeout_s)
        except BaseException as error:
            self._stopped.set_exception(error)
            raise
        self._stopped.set_result(unfinished)
        self._halt()
        return unfinished

    def _stop(self, deadline: float) -> list[Unfinished]:
        CHANGESET.disconnect(self._intake.submit_changeset)
        subqueues = self._intake.subqueues()
        for subqueue in subqueues:
            subqueue.drain()
        if self._pump is not None:
            self._pump.stop()
        if self._listener is not None:
            self._listener.close()
        unfinished = [each for subqueue in subqueues for each in subqueue.close(deadline)]
        unfinished += self._intake.refused
        if unfinished:
            _log.warning("%s: %d keys were not finished", self.name, len(unfinished))
        atexit.unregister(self._kill)
        return unfinished

    def run(self, timeout_s: float = 30.0) -> list[Unfinished]:
        """Start, work until SIGTERM, SIGINT or :meth:`stop`, and stop as :meth:`stop` does.

        A second signal ends the process immediately. Signals are handled in the main thread only.
        """
        return self._run(None, None, timeout_s)

    def run_from(
        self, source: BrokerSource, *, poison: Poison | None = None, timeout_s: float = 30.0
    ) -> list[Unfinished]:
        """Run as :meth:`run` does, with keys from a broker; also raises the errors of the source.

        ``source`` is, for example, an :class:`~stompkit.client.blocking.Inbox`. The messages are
        changesets, as :func:`~stompkit.replication.model.frames.packets` makes them, or those of
        :mod:`~stompkit.replication.workers.messages`. Each is acknowledged when callbacks are
        done with all its keys. An invalid message is passed to ``poison`` with the reason, and
        acknowledged; without ``poison`` it is counted and logged.
        """
        return self._run(source, poison, timeout_s)

    def _run(
        self, source: BrokerSource | None, poison: Poison | None, timeout_s: float
    ) -> list[Unfinished]:
        with halting() as (halt, wait):
            self._halt = halt
            try:
                if not self._is_started:
                    self.start()
                if source is not None:
                    self._begin_pump(source, poison)
                if not self._is_stopping:
                    wait()
            finally:
                self._halt = _nothing
        unfinished = self.stop(timeout_s)
        if self._pump is not None and self._pump.problem is not None:
            raise self._pump.problem
        return unfinished

    def _begin_pump(self, source: BrokerSource, poison: Poison | None) -> None:
        def take_poison(message: BrokerMessage, reason: str) -> None:
            self._intake.note_corrupt(f"a message of the broker: {reason}")
            if poison is not None:
                poison(message, reason)

        with self._lock:
            if not self._is_stopping:
                self._pump = Pump(
                    source,
                    submit_changeset=self._intake.submit_changeset,
                    submit_keys=self._intake.submit_message,
                    poison=take_poison,
                    ended=self._halt,
                )

    def _kill(self) -> None:
        for subqueue in self._intake.subqueues():
            subqueue.kill()

    def stats(self) -> ReplicatorStats:
        """Return the statistics since the start; thread-safe."""
        return ReplicatorStats(
            received=self._intake.received,
            unknown=self._intake.unknown,
            corrupt=self._intake.corrupt,
            reconnects=0 if self._listener is None else self._listener.reconnects,
            workers=tuple(subqueue.stats() for subqueue in self._intake.subqueues()),
        )


def _keys(keys: Iterable[Key]) -> Iterable[Key]:
    if isinstance(keys, (str, bytes)):
        raise ValueError(f"keys are several, such as [{keys!r}]")
    return keys


def _addresses(listen: str | Sequence[str] | None) -> tuple[str, ...]:
    if listen is None:
        return ()
    return (listen,) if isinstance(listen, str) else tuple(listen)


def _nothing() -> None:
    """Do nothing."""
