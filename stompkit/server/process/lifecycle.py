"""Lifecycle of a broker process: lock, store, sockets and clients, and their release."""

from __future__ import annotations

import atexit
import fcntl
import os
import resource
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from stompkit._common.twisted.stopping import stop_reactor
from stompkit._pure import slowness
from stompkit.server.domain.errors import RefusedError
from stompkit.server.interfaces import Clock, StoreError
from stompkit.server.listen.factory import BrokerFactory
from stompkit.server.listen.listeners import ListenError, Listeners, addresses
from stompkit.server.log import process_events
from stompkit.server.log.observer import log_frame
from stompkit.server.process.activation import Opened, StartError
from stompkit.server.process.announce_file import AnnounceFile
from stompkit.server.process.assembly import Access, MakeFactory, access, activation, factory
from stompkit.server.process.notify import Notifier
from stompkit.server.process.steady_time import make_steady
from stompkit.server.settings.beanstalk import BeanstalkSettings
from stompkit.server.settings.process import Settings

if TYPE_CHECKING:
    from stompkit.server.admin import Admin

__all__ = ["Lifecycle"]

#: Interval in seconds between two checks for remaining clients at shutdown.
_PAUSE_S: Final = 0.02
#: Time in seconds for the system to report aborted connections.
_MARGIN_S: Final = 1.0
#: Time in seconds for clients to take their last frames when the lease is handed over.
_HAND_OVER_S: Final = 1.0
#: Code of the ERROR of a broker that is not active.
_PASSIVE: Final = "not-active"
#: Number of descriptors that a broker uses besides those of clients.
_MORE_DESCRIPTORS: Final = 64
#: Maximum number of descriptors to reserve space for at the start; that takes half a megabyte.
_MOST_DESCRIPTORS: Final = 65_535


class Lifecycle:
    """One broker from start to stop; it cannot be started twice."""

    def __init__(
        self,
        settings: Settings,
        announce: Path | None = None,
        *,
        clock: IReactorTime | None = None,
        make: MakeFactory = BrokerFactory,
    ) -> None:
        """Create the broker; ``announce`` is the file to write once it listens.

        ``clock`` controls the deadlines of clients and messages, by default the reactor. ``make``
        is called like :class:`BrokerFactory`. Raises ValueError or OSError for unusable settings.
        """
        from twisted.internet import reactor

        self._reactor = cast("IReactorTime", reactor)
        self.settings = settings
        clock = make_steady(self._reactor) if clock is None else clock
        #: Clock for the deadlines of clients and messages.
        self.clock = cast("Clock", clock)
        self.access = access(settings, self.clock)
        self.factory = factory(settings, self.access, self._reactor, clock, make)
        self._announce = None if announce is None else AnnounceFile(announce)
        self.notifier = Notifier(self._reactor)
        self._activation = activation(settings, self._reactor)
        self._is_started = False
        self._is_stopping = False
        self._listeners_clock = clock
        self._listeners = self._new_listeners()
        #: The end of the previous listeners, whose ports the next ones use.
        self._closing: Deferred[None] = succeed(None)
        self._is_listening = False
        self._admin = self._make_admin()
        #: Called once the broker listens, if set.
        self.when_listening: Callable[[], None] | None = None

    def _new_listeners(self) -> Listeners:
        return Listeners(self.settings, self.factory, self._listeners_clock, self._reactor)

    def _make_admin(self) -> Admin | None:
        if not self.settings.admin.endpoints:
            return None
        # Imported on demand, since importing HTTP takes long.
        from stompkit.server.admin import Admin

        broker, settings = self.factory.broker, self.settings
        return Admin(
            broker,
            settings,
            lambda: self.trouble,
            self._reactor,
            lambda: self.access,
            self._activation,
        )

    @property
    def trouble(self) -> str | None:
        """Return why the broker is not ready; ``None`` if it is."""
        if self._is_stopping:
            return "it is shutting down"
        if not self._is_listening or not self._activation.is_active:
            return self._activation.trouble
        failure = self.factory.broker.commit_queue.failure
        if failure is not None:
            return f"its store has failed: {failure}"
        return None

    @property
    def has_files(self) -> bool:
        """True if it uses files, which must belong to the right user."""
        return self.settings.store.has_store or self._activation.has_files

    # Start.

    def start(self) -> None:
        """Start once, as soon as no other broker uses the same data.

        Raises SystemExit with the reason for an immediate failure; a later failure ends the
        process.
        """
        if self._is_started:
            return
        self._is_started = True
        try:
            self.factory.broker.refusal = RefusedError("this broker is not active", _PASSIVE)
            self._at_once(self._start_admin())
            self._activation.start(self)
            self._refuse()
        except StartError as error:
            self.notifier.status(str(error))
            self._give_back()
            raise SystemExit(f"stompkit: {error}") from error

    def begin(self, opened: Opened | None = None) -> None:
        """Listen, with an open store or else the own one; later errors end the process."""
        if self._is_stopping:
            return
        store, broker = self.settings.store, self.factory.broker
        _make_room_for_descriptors(broker.config.max_connections)
        slow = slowness()
        if slow is not None:
            process_events.not_compiled(reason=slow)
        if not store.has_store:
            process_events.messages_in_memory()
        if opened is not None:
            self._close_ports()
            broker.begin(*opened)
            broker.scheduler.guard = self._may_work
        else:
            try:
                broker.open()
            except StoreError as error:
                raise StartError(f"cannot open the store: {error}") from error
            broker.refusal = None
        self.log_frames(wanted=self.settings.log.frames)
        self._at_once(self._listen())

    def _may_work(self) -> bool:
        return self._activation.is_active

    def _at_once(self, work: Coroutine[Deferred[Any], Any, None]) -> None:
        """Raise an immediate error of *work*; a later error ends the process."""
        failures: list[BaseException] = []
        is_at_once = True

        def failed(failure: Failure) -> None:
            assert failure.value is not None
            failures.append(failure.value)
            if not is_at_once:
                self.end(failure.value)

        # It completes immediately for all endpoints except systemd's and those of plug-ins.
        Deferred.fromCoroutine(work).addErrback(failed)
        is_at_once = False
        if failures:
            raise failures[0]

    async def _start_admin(self) -> None:
        if self._admin is None:
            return
        try:
            await self._admin.start()
        except ListenError as error:
            raise StartError(str(error)) from error

    async def _listen(self) -> None:
        if not await self._open_ports():
            return
        self._is_listening = True
        if self._announce is not None:
            self._announce.prepare(self.announcement())
        # In a reactor iteration, so that a signal after the notification ends it in good order.
        self._reactor.callLater(0, self._report_listening)

    async def _open_ports(self) -> bool:
        """Open the ports for clients; return False if they were closed meanwhile."""
        listeners = self._listeners
        await self._closing
        try:
            return not listeners.is_stopped and await listeners.listen()
        except ListenError as error:
            raise StartError(str(error)) from error

    def _report_listening(self) -> None:
        """Announce that the broker listens."""
        if not self.is_listening:
            return
        if self._announce is not None:
            try:
                self._announce.publish()
            except StartError as error:
                self.end(error)
                return
        self.notifier.ready(self.state)
        if self.when_listening is not None:
            self.when_listening()

    @property
    def is_listening(self) -> bool:
        """True if clients can connect."""
        return self._is_listening and not self._is_stopping

    @property
    def state(self) -> str:
        """One line of status: the endpoints."""
        return f"listening on {self._listeners}"

    def change_beanstalk(self, new: BeanstalkSettings) -> None:
        """Apply new settings for beanstalkd clients; their endpoints stay open."""
        self._listeners.change_beanstalk(new)

    def change_access(self, new: Access) -> None:
        """Replace authenticator and authoriser."""
        old, self.access = self.access, new
        self.factory.broker.authenticator = new.authenticator
        self.factory.broker.authoriser = new.authoriser
        Deferred.fromCoroutine(old.close()).addErrback(_log_failure)

    def log_frames(self, *, wanted: bool) -> None:
        """Log the frames of clients that connect from now on, or stop logging."""
        self.factory.broker.frame_log = log_frame if wanted else None

    def announcement(self) -> dict[str, object]:
        """Return the content of the announce file: process id, and address of each endpoint.

        Other listeners are listed separately: ``websocket``, ``beanstalk``, ``admin``.
        """
        announced = {"pid": os.getpid(), **self._listeners.announcement()}
        if self._admin is not None:
            announced["admin"] = addresses(self._admin.ports)
        return announced

    # The right to be active.

    def status(self, text: str) -> None:
        """Report in one line for whom this broker stands by."""
        self.notifier.standing_by(text)

    def stand_by(self, reason: str) -> None:
        """End all sessions at once: another broker may have taken over."""
        self._close_ports()
        self.factory.broker.stand_by(RefusedError(f"this broker is not active: {reason}", _PASSIVE))
        self._refuse()

    def hand_over(self) -> None:
        """End all sessions, store everything, and release the lease."""
        Deferred.fromCoroutine(self._hand_over()).addErrback(_log_failure)

    async def _hand_over(self) -> None:
        broker = self.factory.broker
        broker.refusal = refused = RefusedError(
            "this broker is not active: it has handed over to another", _PASSIVE
        )
        store = broker.store
        self._close_ports()
        await self._disconnect(refused, _HAND_OVER_S)
        if broker.store is not store or not self._activation.is_active or self._is_stopping:
            return  # the lease is lost, or the stop releases it
        broker.close()
        broker.stand_by(refused)
        self._activation.leave()
        self._refuse()

    def _refuse(self) -> None:
        """Open the ports of a passive broker, to refuse clients, if the settings ask for that."""
        is_passive = self.factory.broker.refusal is not None and not self._is_stopping
        if self.settings.high_availability.refuses and is_passive:
            self._at_once(self._open_refusing_ports())

    async def _open_refusing_ports(self) -> None:
        await self._open_ports()

    def _close_ports(self) -> None:
        """Close the ports for clients; the next listeners open them again."""
        self._is_listening = False
        if self._announce is not None:
            self._announce.withdraw()
        listeners, self._listeners = self._listeners, self._new_listeners()
        self._closing = Deferred.fromCoroutine(listeners.stop())
        self._closing.addErrback(_log_failure)

    # Stop.

    def end(self, reason: object) -> None:
        """End the process, with an error."""
        process_events.fatal(reason=str(reason))
        self.notifier.status(str(reason))
        # Neither twist nor twistd can return an exit status for a failure.
        atexit.register(_exit_with_failure)
        stop_reactor(self._reactor)

    async def stop(self) -> None:
        """Disconnect the clients, flush the data to the disk, and release everything.

        Does nothing before the start and after the stop.
        """
        if not self._is_started or self._is_stopping:
            return
        self._is_stopping = True
        self.notifier.stopping()
        if self._announce is not None:
            self._announce.remove()
        await self._listeners.stop()
        config = self.factory.broker.config
        wait_s = config.drain_timeout_s + config.linger_s + _MARGIN_S
        refused = RefusedError("the broker is shutting down", "shutting-down")
        await self._disconnect(refused, wait_s)
        await self.access.close()
        if self._admin is not None:
            await self._admin.stop()
        self._give_back()
        self.notifier.close()

    def _give_back(self) -> None:
        """Close the broker and its store, and release the right to be active."""
        if self._activation.is_active:
            self.factory.broker.close()
        self._activation.stop()

    async def _disconnect(self, refused: RefusedError, wait_s: float) -> None:
        """Close all connections with an ERROR, and wait for their end for a limited time."""
        broker = self.factory.broker
        self.factory.disconnect_all(refused.message, refused.code)
        deadline = self._reactor.seconds() + wait_s
        while broker.connections and self._reactor.seconds() < deadline:
            await deferLater(self._reactor, _PAUSE_S)


def _log_failure(failure: Failure) -> None:
    process_events.cleanup_failed(failure=failure)


def _make_room_for_descriptors(connections: int) -> None:
    """Make the kernel allocate its descriptor table at full size.

    Once threads run, each doubling of the table stops the process until all processors have noticed
    it. That takes some hundredths of a second.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = min(connections + _MORE_DESCRIPTORS, _MOST_DESCRIPTORS)
    if most != resource.RLIM_INFINITY:
        last = min(last, most - 1)
    with suppress(OSError), open(os.devnull, "rb") as file:
        os.close(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, last))


def _exit_with_failure() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(1)
