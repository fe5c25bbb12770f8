"""Lifecycle of a broker process: lock, store, sockets and clients, and their release."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import resource
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IDelayedCall,
    IReactorCore,
    IReactorFromThreads,
    IReactorTime,
)
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from stompkit._pure import slowness
from stompkit.server.interfaces import Clock, StoreError
from stompkit.server.listen.factory import BrokerFactory
from stompkit.server.listen.listeners import ListenError, Listeners, addresses
from stompkit.server.log import process_events
from stompkit.server.log.observer import log_frame
from stompkit.server.process.assembly import Access, MakeFactory, access, factory
from stompkit.server.process.lock import DirectoryLock
from stompkit.server.process.notify import Notifier
from stompkit.server.settings.beanstalk import BeanstalkSettings
from stompkit.server.settings.process import Settings

if TYPE_CHECKING:
    from stompkit.server.admin import Admin

__all__ = ["Lifecycle"]


#: Interval in seconds between two checks for remaining clients at shutdown.
_PAUSE_S: Final = 0.02
#: Time in seconds for the system to report aborted connections.
_MARGIN_S: Final = 1.0
#: Number of descriptors that a broker uses besides those of clients.
_MORE_DESCRIPTORS: Final = 64
#: Maximum number of descriptors to reserve space for at the start; that takes half a megabyte.
_MOST_DESCRIPTORS: Final = 65_535


class _StartError(Exception):
    """An error that prevents the start of a broker."""


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
        clock = self._reactor if clock is None else clock
        #: Clock for the deadlines of clients and messages.
        self.clock = cast("Clock", clock)
        self.access = access(settings, self.clock)
        self.factory = factory(settings, self.access, self._reactor, clock, make)
        self._announce = announce
        self.notifier = Notifier(self._reactor)
        path = settings.store.path
        self._lock = None if path is None else DirectoryLock(Path(path).absolute())
        self._is_started = False
        self._is_stopping = False
        self._lock_timeout: IDelayedCall | None = None
        self._listeners = Listeners(settings, self.factory, clock, self._reactor)
        self._is_listening = False
        self._admin = self._make_admin()
        #: Called once the broker listens, if set.
        self.when_listening: Callable[[], None] | None = None

    def _make_admin(self) -> Admin | None:
        if not self.settings.admin.endpoints:
            return None
        # Imported on demand, since importing HTTP takes long.
        from stompkit.server.admin import Admin

        broker, settings = self.factory.broker, self.settings
        return Admin(broker, settings, lambda: self.trouble, self._reactor, lambda: self.access)

    @property
    def trouble(self) -> str | None:
        """Return why the broker is not ready; ``None`` if it is."""
        if self._is_stopping:
            return "it is shutting down"
        if not self._is_listening:
            if self._lock is not None and not self._lock.is_held:
                return "it stands by: another broker works on its data"
            return "it does not listen yet"
        failure = self.factory.broker.commit_queue.failure
        if failure is not None:
            return f"its store has failed: {failure}"
        return None

    @property
    def has_files(self) -> bool:
        """True if it uses files, which must belong to the right user."""
        return self.settings.store.has_store or self._lock is not None

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
            self._at_once(self._start_admin())
            if self._may_begin():
                self._begin()
        except _StartError as error:
            self.notifier.status(str(error))
            self._give_back()
            raise SystemExit(f"stompkit: {error}") from error

    def _may_begin(self) -> bool:
        lock, timeout_s = self._lock, self.settings.store.lock_timeout_s
        if lock is None:
            return True
        try:
            if lock.try_acquire():
                return True
        except OSError as error:
            if lock.path.parent.is_file():
                raise _StartError(
                    f"cannot keep messages in {lock.path.parent}: it is a file. Name a directory"
                    " with --data or in [store]."
                ) from error
            raise _StartError(f"cannot lock {lock.path}: {error.strerror}") from error
        who = lock.holder()
        if timeout_s == 0:
            raise _StartError(f"{lock.path.parent} is in use: {lock.path} is held by {who}")
        process_events.standing_by(path=str(lock.path), holder=who)
        self.notifier.status(f"standing by: {lock.path} is held by {who}")
        from_thread = cast("IReactorFromThreads", self._reactor).callFromThread
        lock.wait(
            lambda: from_thread(self._took_over),
            lambda error: from_thread(self._failed_to_lock, error),
        )
        if timeout_s is not None:
            self._lock_timeout = self._reactor.callLater(timeout_s, self._waited_enough)
        return False

    def _took_over(self) -> None:
        if self._is_stopping:
            return
        self._stop_waiting()
        assert self._lock is not None  # the process has waited for it
        process_events.taking_over(path=str(self._lock.path))
        try:
            self._begin()
        except _StartError as error:
            self._end_process(error)

    def _failed_to_lock(self, error: OSError) -> None:
        if not self._is_stopping:
            self._end_process(f"cannot lock: {error.strerror}")

    def _waited_enough(self) -> None:
        self._lock_timeout = None
        assert self._lock is not None  # the process has waited for it
        self._end_process(
            f"{self._lock.path} is still held by {self._lock.holder()} after"
            f" {self.settings.store.lock_timeout_s:g} seconds"
        )

    def _stop_waiting(self) -> None:
        if self._lock_timeout is not None:
            self._lock_timeout.cancel()
            self._lock_timeout = None

    def _begin(self) -> None:
        """Open the store and listen; raises immediate errors, and exits on later ones."""
        store = self.settings.store
        _make_room_for_descriptors(self.factory.broker.config.max_connections)
        slow = slowness()
        if slow is not None:
            process_events.not_compiled(reason=slow)
        if not store.has_store:
            process_events.messages_in_memory()
        try:
            self.factory.broker.open()
        except StoreError as error:
            raise _StartError(f"cannot open the store: {error}") from error
        self.log_frames(wanted=self.settings.log.frames)
        self._at_once(self._listen())

    def _at_once(self, work: Coroutine[Deferred[Any], Any, None]) -> None:
        """Raise an immediate error of *work*; a later error ends the process."""
        failures: list[BaseException] = []
        is_at_once = True

        def failed(failure: Failure) -> None:
            assert failure.value is not None
            failures.append(failure.value)
            if not is_at_once:
                self._end_process(failure.value)

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
        except Exception as error:
            raise _StartError(f"cannot serve the admin's HTTP: {error}") from error

    async def _listen(self) -> None:
        try:
            if not await self._listeners.listen():
                return
        except ListenError as error:
            raise _StartError(str(error)) from error
        self._is_listening = True
        if self._announce is not None:
            self._prepare_announcement(_partial(self._announce))
        # In a reactor iteration: a process notified of readiness may send a signal, which then ends
        # the process in good order.
        self._reactor.callLater(0, self._report_listening)

    def _prepare_announcement(self, partial: Path) -> None:
        try:
            partial.write_text(json.dumps(self.announcement()) + "\n", encoding="utf-8")
        except OSError as error:
            raise _StartError(f"cannot write the announce file: {error}") from error

    def _report_listening(self) -> None:
        """Announce that the broker listens."""
        if self._is_stopping:
            return
        if self._announce is not None:
            try:
                # Readers never see a partial file.
                _partial(self._announce).replace(self._announce)
            except OSError as error:
                self._end_process(f"cannot write the announce file: {error}")
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

    # Stop.

    def _end_process(self, reason: object) -> None:
        process_events.fatal(reason=str(reason))
        self.notifier.status(str(reason))
        # Neither twist nor twistd can return an exit status for a failure.
        atexit.register(_exit_with_failure)
        cast("IReactorCore", self._reactor).stop()

    async def stop(self) -> None:
        """Disconnect the clients, flush the data to the disk, and release everything.

        Does nothing before the start and after the stop.
        """
        if not self._is_started or self._is_stopping:
            return
        self._is_stopping = True
        self.notifier.stopping()
        self._stop_waiting()
        if self._announce is not None:
            self._announce.unlink(missing_ok=True)
            _partial(self._announce).unlink(missing_ok=True)
        await self._listeners.stop()
        await self._disconnect()
        await self.access.close()
        if self._admin is not None:
            await self._admin.stop()
        self._give_back()
        self.notifier.close()

    def _give_back(self) -> None:
        """Close the broker and its store, and release the lock."""
        if self._lock is None or self._lock.is_held:
            self.factory.broker.close()
        if self._lock is not None:
            self._lock.release()

    async def _disconnect(self) -> None:
        broker = self.factory.broker
        self.factory.disconnect_all("the broker is shutting down", "shutting-down")
        config = broker.config
        wait_s = config.drain_timeout_s + config.linger_s + _MARGIN_S
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


def _partial(path: Path) -> Path:
    """Return the name of a file while its content is incomplete."""
    return path.with_name(f".{path.name}.{os.getpid()}")
