"""One direction of a route, from session to session."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from stompkit._common.files import describe
from stompkit.bridge._buffer import Buffer, InThread
from stompkit.bridge._errors import RouteStoppedError
from stompkit.bridge._full import text_of_error
from stompkit.bridge._memory import Memory
from stompkit.bridge._session import ClientMaker, Session
from stompkit.bridge._settings import Leg
from stompkit.bridge._status import RouteStatus
from stompkit.client import BrokerError, ClientError, ReconnectPolicy
from stompkit.spool import SpoolError

__all__ = ["Route"]

_log: Final = Logger()
#: Number of forwarded messages remembered to detect duplicates.
_REMEMBERED: Final = 10_000


class Route:
    """Forwards messages from one site to another until it is stopped.

    Each side reconnects by itself. If a broker refuses the login or a subscription, the route
    disconnects both sides and retries later. A refused message stops the route, unless a
    dead-letter destination is configured.
    """

    def __init__(
        self,
        leg: Leg,
        durable_name: str,
        make_client: ClientMaker,
        clock: IReactorTime,
        in_thread: Callable[[], InThread],
        *,
        retry: ReconnectPolicy,
        random: Callable[[], float],
        now: Callable[[], float] = time.time,
    ) -> None:
        """Initialise the route; nothing is connected yet."""
        self.leg: Final = leg
        self.status: Final = RouteStatus(
            name=leg.name,
            source=leg.source.name,
            to=leg.to.name,
            destinations=list(leg.destinations),
        )
        self._durable_name = durable_name
        self._make_client = make_client
        self._clock = clock
        self._in_thread = in_thread()
        self._retry = retry
        self._random = random
        self._now = now
        self._memory = Memory(_REMEMBERED)
        self._buffer: Buffer | None = None
        self._session: Session | None = None
        #: True if the destination made the last session fail.
        self._is_destination_at_fault = False
        self._is_ending = False
        self._pause: tuple[IDelayedCall, Deferred[None]] | None = None
        self._over: Deferred[None] | None = None  # while it runs

    def start(self) -> Deferred[None]:
        """Start; fires when the route has ended or stopped."""
        self._over = Deferred()
        return Deferred.fromCoroutine(self._run())

    async def stop(self, timeout_s: float) -> None:
        """Stop receiving, wait up to *timeout_s* seconds for confirmations, and disconnect."""
        self._is_ending = True
        if self._pause is not None:
            call, waiting = self._pause
            if call.active():
                call.cancel()
                waiting.callback(None)
        if self._session is not None:
            await self._session.finish(timeout_s)
        if self._over is not None:
            await self._over

    def refresh(self) -> None:
        """Update the status."""
        if self._session is not None:
            self._session.refresh()

    async def _run(self) -> None:
        failures = 0
        try:
            while not self._is_ending:
                begun = self._clock.seconds()
                try:
                    await self._one_session()
                except RouteStoppedError as stopped:
                    self._stopped(str(stopped))
                    return
                except (SpoolError, ValueError) as problem:
                    self._stopped(str(problem))
                    return
                except Exception as error:
                    if self._clock.seconds() - begun > self._retry.settle_s + self._retry.max_s:
                        failures = 0
                    failures += 1
                    await self._wait(error, failures)
            self.status.state = "ended"
        finally:
            if self._buffer is not None:
                await self._in_thread(self._buffer.close)
            over, self._over = self._over, None
            if over is not None:
                over.callback(None)

    async def _one_session(self) -> None:
        leg = self.leg
        if leg.buffer is not None and self._buffer is None:
            folder = leg.buffer
            self._buffer = await self._in_thread(lambda: Buffer(folder, _REMEMBERED))
        self._session = session = Session(
            leg,
            self._durable_name,
            self.status,
            self._memory,
            self._make_client,
            self._clock,
            self._now,
            self._buffer,
            self._in_thread,
            lambda failures: self._retry.delay_s(failures, self._random),
            needs_destination=self._is_destination_at_fault,
        )
        try:
            await session.run()
        finally:
            self._is_destination_at_fault = session.is_destination_at_fault
            await session.close()
            self._session = None

    def _stopped(self, reason: str) -> None:
        self.status.state = "stopped"
        self.status.problem = reason
        _log.error("route {name} has stopped: {reason}", name=self.leg.name, reason=reason)

    def _problem(self, error: Exception) -> str:
        """Return the reason of a failure; if a broker is the reason, with its name and hosts."""
        if not isinstance(error, ClientError):
            return describe(error)
        site = self.leg.to if self._is_destination_at_fault else self.leg.source
        reason = text_of_error(error) if isinstance(error, BrokerError) else describe(error)
        text = f"{site.name} at {', '.join(site.url.hosts)}: {reason}"
        is_host = "virtual host" in reason.lower() and site.url.virtual_host is None
        return f"{text}. Add ?vhost=NAME to its URL" if is_host else text

    async def _wait(self, error: Exception, failures: int) -> None:
        if self._is_ending:
            return
        delay_s = self._retry.delay_s(failures, self._random)
        problem = self._problem(error)
        # Attempts that fail for the same reason are logged once.
        is_new = failures == 1 or problem != self.status.problem
        self.status.state, self.status.problem = "waiting", problem
        (_log.warn if is_new else _log.debug)(
            "route {name}: {reason}; trying again in {delay:.1f} s",
            name=self.leg.name,
            reason=problem,
            delay=delay_s,
        )
        waiting: Deferred[None] = Deferred()
        self._pause = self._clock.callLater(delay_s, waiting.callback, None), waiting
        await waiting
        self._pause = None
