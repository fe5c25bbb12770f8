"""All routes of a bridge, in one process."""

from __future__ import annotations

import os
import random as random_module
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThread

from stompkit.bridge._buffer import InThread
from stompkit.bridge._route import Route
from stompkit.bridge._session import ClientMaker
from stompkit.bridge._settings import BridgeSettings, Site
from stompkit.bridge._status import BridgeStatus
from stompkit.client import Client, ReconnectPolicy

__all__ = ["Bridge"]

_RETRY: Final = ReconnectPolicy(initial_s=0.2, max_s=15.0)
_RECONNECT: Final = ReconnectPolicy(max_s=10.0)


class Bridge:
    """Runs the routes of a bridge, on the running reactor if no other is given."""

    def __init__(
        self,
        settings: BridgeSettings,
        *,
        make_client: ClientMaker | None = None,
        clock: IReactorTime | None = None,
        run_in_thread: Callable[[Callable[[], object]], Deferred[object]] = deferToThread,
        retry: ReconnectPolicy = _RETRY,
        random: Callable[[], float] = random_module.random,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Prepare the routes; nothing is connected yet.

        ``retry`` is the back-off after a broker refuses a login or a subscription. ``now`` returns
        seconds since 1970. The other arguments are for tests.
        """
        if clock is None:
            from twisted.internet import reactor as running

            clock = cast("IReactorTime", running)
        self._name = settings.name
        self._started_s = now()
        self._now = now
        make = client_of if make_client is None else make_client
        self._routes = [
            Route(
                leg,
                f"{settings.name}-{leg.name}",
                make,
                clock,
                lambda: InThread(run_in_thread),
                retry=retry,
                random=random,
                now=now,
            )
            for leg in settings.legs
        ]

    def start(self) -> Deferred[None]:
        """Start all routes; fires when every route has ended or stopped."""
        return _all(route.start() for route in self._routes)

    def stop(self, timeout_s: float = 10.0) -> Deferred[None]:
        """Stop; fires when all messages are confirmed, or after about ``timeout_s`` seconds."""
        return _all(Deferred.fromCoroutine(route.stop(timeout_s)) for route in self._routes)

    def status(self) -> BridgeStatus:
        """Return the current status of all routes."""
        for route in self._routes:
            route.refresh()
        return BridgeStatus(
            name=self._name,
            pid=os.getpid(),
            started_s=self._started_s,
            updated_s=self._now(),
            routes=[route.status for route in self._routes],
        )


def client_of(site: Site, **settings: Any) -> Client:
    """Return a client of a site."""
    url = site.url
    return Client(
        url.endpoints(),
        login=url.login,
        passcode=url.passcode,
        virtual_host=url.virtual_host,
        reconnect=_RECONNECT,
        **settings,
    )


def _all(several: Iterable[Deferred[None]]) -> Deferred[None]:
    return gatherResults(list(several), consumeErrors=True).addCallback(lambda _: None)
