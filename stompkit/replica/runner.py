"""Runs the engine of a replica in a thread, connected to its brokers."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from typing import Any, Final, TypeVar

from stompkit._common.moved import renamed
from stompkit._common.retry import Backoff
from stompkit.replica._channels.channel import Channel
from stompkit.replica._channels.connection import Arrival, ChannelConnection
from stompkit.replica._running.busy_retry import BUSY_S, within
from stompkit.replica._running.lease import ReplicaLease
from stompkit.replica._running.mailbox import Mailbox
from stompkit.replica.applier import Applier
from stompkit.replica.engine import Engine, EngineSettings, Outgoing
from stompkit.replica.signing import Signer, Verifier
from stompkit.replica.store import ReplicaStoreError, Store

__all__ = ["ReplicaStoppedError", "Runner"]

_log: Final = logging.getLogger(__name__)
_Given = TypeVar("_Given")

#: Maximum backlog of the engine: messages and bytes.
_WAITING: Final = 5_000
_WAITING_BYTES: Final = 32 * 1024 * 1024
#: Maximum batch for the engine: messages and bytes. A batch is one transaction.
_BATCH: Final = 500
_BATCH_BYTES: Final = 4 * 1024 * 1024
#: Limit of unconfirmed bytes at a broker, above which no new work begins.
_UNCONFIRMED_BYTES: Final = 16 * 1024 * 1024
#: Maximum back-off in seconds while the store is busy.
_BUSY_MOST_S: Final = 5.0
#: Timeouts in seconds: for the store at the start, and for a broker at the end.
_START_S: Final = 15.0
_CLOSE_S: Final = 10.0


class ReplicaStoppedError(Exception):
    """The engine's thread has ended; the cause, if any, is the exception that ended it."""


class Runner:
    """An engine in a background thread, from :meth:`start` to :meth:`stop`."""

    def __init__(
        self,
        store: Store,
        applier: Applier,
        settings: EngineSettings,
        ports: Sequence[Channel],
        *,
        signer: Signer | None = None,
        verifier: Verifier | None = None,
        poll_s: float = 1.0,
        lease_s: float = 30.0,
        on_turn: Callable[[], object] = lambda: None,
    ) -> None:
        """Set up the runner; ``ports`` are the channels of the settings, in order.

        It polls for commits of other processes every ``poll_s`` seconds. It calls ``on_turn`` in
        its thread whenever it has done something.
        """
        self._store = store
        self._lease = ReplicaLease(store, lease_s)
        self._engine = Engine(
            store,
            applier,
            settings,
            wall=time.time,
            monotonic=time.monotonic,
            chance=random.Random(),
            send=self._send,
            signer=signer,
            verifier=verifier,
        )
        self._mailbox = Mailbox[Arrival](max_messages=_WAITING, max_bytes=_WAITING_BYTES)
        self._connections = [
            ChannelConnection(number, port, self._mailbox, self._changed)
            for number, port in enumerate(ports)
        ]
        self._poll_s = poll_s
        self._poll_at_s = 0.0
        #: Number of write transactions in the store at the last check.
        self._written = 0
        self._on_step = on_turn
        self._is_stopping = threading.Event()
        self._generation = 0
        #: Current problem with the store.
        self._problem = ""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="stompkit-replica", daemon=True)

    @property
    def is_running(self) -> bool:
        """True if the thread runs."""
        return self._thread.is_alive()

    @property
    def error(self) -> BaseException | None:
        """Exception that ended the thread, if it has failed."""
        return self._error

    def start(self) -> None:
        """Acquire the lease and start the thread.

        Raises :class:`~stompkit.replica.ReplicaInUseError`,
        :class:`~stompkit.replica.nodes.IdentityError`, and
        :class:`~stompkit.replica.store.ReplicaStoreError`.
        """
        within(_START_S, self._lease.acquire)
        try:
            within(_START_S, self._engine.open)
        except BaseException:
            self._lease.release()
            raise
        self._thread.start()

    def stop(self) -> None:
        """Send what is committed, disconnect and end the thread; raises the thread's exception.

        Harmless if it was called before or the thread was never started.
        """
        self._is_stopping.set()
        self.wake()
        if self._thread.ident is not None:
            self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wake(self) -> None:
        """Notify the engine of a commit; safe to call from any thread."""
        self._mailbox.call(self._engine.wake)

    def call(self, function: Callable[[Engine], _Given]) -> Future[_Given]:
        """Call a function in the engine's thread; fails with :class:`ReplicaStoppedError`."""
        future: Future[_Given] = Future()
        if not self._mailbox.call(partial(_answer, future, function, self._engine)):
            self._refuse(future)
        return future

    @property
    def problems(self) -> list[str]:
        """Current problems with the store and with brokers."""
        problems = [each.problem for each in self._connections if each.problem]
        slow = [each.channel.destination for each in self._connections if self._is_slow(each)]
        if slow:
            problems.append(
                f"{' and '.join(slow)}: the broker has not confirmed {_UNCONFIRMED_BYTES >> 20} MiB"
                " of messages; no channel sends before it does or is disconnected"
            )
        return [self._problem, *problems] if self._problem else problems

    # The engine's thread.

    def _run(self) -> None:
        try:
            for connection in self._connections:
                connection.open(self._engine.destinations(connection.number), self._engine.origin)
            self._generation = self._engine.generation
            while not self._is_stopping.is_set():
                self._step()
            self._finish()
        except _StoppedError:
            pass
        except BaseException as error:
            self._error = error
            _log.exception("the replica has stopped")
        finally:
            self._close()

    def _step(self) -> None:
        self._wait()
        self._do_calls()
        now_s = time.monotonic()
        if self._lease.is_due:
            self._retry_while_busy(self._lease.renew)
        for connection in self._connections:
            connection.retry(now_s)
        self._receive()
        self._poll()
        self._move()
        self._on_step()

    def _wait(self) -> None:
        """Wait until there is something to do."""
        times = [each.due_s for each in self._connections if each.due_s is not None]
        if not self._is_congested:
            # Otherwise there is nothing to do before a broker has confirmed something.
            times.append(self._poll_at_s)
            if self._engine.deadline is not None:
                times.append(self._engine.deadline)
        waits_s = [each - time.monotonic() for each in times]
        self._mailbox.wait(max(0.0, min([self._lease.due_in_s, *waits_s])))

    def _receive(self) -> None:
        """Store received messages, and then acknowledge them."""
        arrivals = self._mailbox.take(_BATCH, _BATCH_BYTES)
        for connection, group in groupby(arrivals, lambda arrival: arrival.connection):
            taken = list(group)
            frames = [(each.delivery.headers, each.delivery.body) for each in taken]
            self._retry_while_busy(partial(self._engine.receive, connection.number, frames))
            for inbox, some in groupby(taken, lambda arrival: arrival.inbox):
                inbox.ack([each.delivery for each in some])

    def _poll(self) -> None:
        """Run the engine's due work."""
        if self._is_congested:
            return
        if time.monotonic() >= self._poll_at_s:
            self._retry_while_busy(self._look)
            self._poll_at_s = time.monotonic() + self._poll_s
        deadline_s = self._engine.deadline
        if deadline_s is not None and deadline_s <= time.monotonic():
            self._retry_while_busy(self._engine.poll)

    def _look(self) -> None:
        """Notify the engine of commits by other processes."""
        written = self._store.generation()
        if written != self._written:
            self._written = written
            self._engine.wake()

    def _move(self) -> None:
        """Change the subscriptions if the node has a new identity."""
        if self._engine.generation != self._generation:
            self._generation = self._engine.generation
            for connection in self._connections:
                connection.subscribe(self._engine.destinations(connection.number))

    def _finish(self) -> None:
        """Send what was committed before the stop."""
        self._do_calls()
        if not self._is_congested:
            try:
                self._engine.end()
            except ReplicaStoreError as problem:
                _log.warning("what was committed last is sent after the next start: %s", problem)

    def _close(self) -> None:
        self._mailbox.close()
        for connection in self._connections:
            # Data that an absent broker has not confirmed is sent or requested again later.
            connection.close(_CLOSE_S if connection.is_up and self._error is None else 0.0)
        for function in self._mailbox.take_calls():
            # No callback reaches the engine any more.
            if isinstance(function, partial) and function.func is _answer:
                self._refuse(function.args[0])
        try:
            self._lease.release()
        except Exception as error:
            _log.warning("the lease is not given back, and will expire: %s", error)
        self._on_step()

    def _refuse(self, future: Future[Any]) -> None:
        stopped = ReplicaStoppedError("the replica is not running")
        stopped.__cause__ = self._error
        future.set_exception(stopped)

    def _do_calls(self) -> None:
        for function in self._mailbox.take_calls():
            function()

    def _retry_while_busy(self, function: Callable[[], object]) -> None:
        """Retry a function until the store is usable; answers calls meanwhile."""
        backoff = Backoff(BUSY_S, _BUSY_MOST_S)
        while True:
            try:
                function()
                self._problem = ""
                return
            except ReplicaStoreError as problem:
                self._problem = str(problem)
            until_s = time.monotonic() + backoff.fail() * (0.5 + random.random())
            while (left_s := until_s - time.monotonic()) > 0:
                self._mailbox.wait(left_s, for_deliveries=False)
                self._do_calls()
                if self._is_stopping.is_set():
                    raise _StoppedError

    @property
    def _is_congested(self) -> bool:
        """True if a connected broker has too many unconfirmed bytes."""
        return any(map(self._is_slow, self._connections))

    @staticmethod
    def _is_slow(connection: ChannelConnection) -> bool:
        return connection.is_up and connection.unconfirmed > _UNCONFIRMED_BYTES

    # Callbacks of the engine and the connections.

    def _send(self, outgoing: Outgoing) -> None:
        self._connections[outgoing.port].send(outgoing.destination, outgoing.packets)

    def _changed(self, number: int, is_up: bool) -> None:  # noqa: FBT001
        if is_up:
            self._engine.connected(number)
        else:
            self._engine.disconnected(number)


class _StoppedError(Exception):
    """A stop was requested while the thread waited for the store."""


def _answer(future: Future[_Given], function: Callable[[Engine], _Given], engine: Engine) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(function(engine))
        except BaseException as error:
            future.set_exception(error)


renamed(
    __name__,
    ReplicaStopped="ReplicaStoppedError",
)
