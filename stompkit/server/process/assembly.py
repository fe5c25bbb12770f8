"""A broker made of its settings."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime

from stompkit.server.interfaces import Authenticator, Authoriser, Clock, MessageStore
from stompkit.server.listen.protocol import BrokerFactory
from stompkit.server.login.auth import CredAuthenticator, checkers_from
from stompkit.server.login.limited_authenticator import Decider, LimitedAuthenticator
from stompkit.server.login.login_limiter import LoginLimiter
from stompkit.server.login.rights import RightsAuthoriser
from stompkit.server.settings.process import AuthSettings, Settings, StoreSettings
from stompkit.server.stores.environment import DATA_FILE, DIRECTORY
from stompkit.server.stores.lmdb import LmdbStore
from stompkit.server.stores.runner import ThreadRunner

__all__ = ["Access", "MakeFactory", "access", "factory", "has_lmdb", "store"]

#: Seconds that one thread may keep the others from running. A store's thread lets go of the
#: interpreter with each of its many short calls, and with Python's 5 ms it would wait for the
#: busy thread of the reactor each time: persistent messages come in at half the rate.
_SWITCH_S: Final = 0.0005


#: Makes what makes the protocols: :class:`BrokerFactory`, or what is called as it is.
MakeFactory: TypeAlias = Callable[..., BrokerFactory]


class Access(NamedTuple):
    """Who decides on logins and rights, and how to let go of what that takes."""

    authenticator: Authenticator | None
    authoriser: Authoriser | None
    closers: tuple[Callable[[], Deferred[None]], ...] = ()

    async def close(self) -> None:
        """Close connections to services that were asked."""
        for close in self.closers:
            await close()


def access(settings: Settings, clock: Clock) -> Access:
    """Make what decides on logins and rights; ValueError or OSError says what is wrong."""
    auth = settings.auth
    rights = None
    if settings.rights:
        rights = RightsAuthoriser(settings.rights)

    def throttled(decider: Decider) -> Authenticator:
        throttle = LoginLimiter(auth.throttle)
        timeout_s = settings.broker.login_timeout_s
        return LimitedAuthenticator(decider, throttle, clock, login_timeout_s=timeout_s)

    if auth.http is None:
        decider = _authenticator(auth)
        return Access(None if decider is None else throttled(decider), rights)
    from stompkit.server.login.http_authoriser import HttpAuthenticator, HttpAuthoriser

    authenticator = HttpAuthenticator(auth.http)
    authoriser = HttpAuthoriser(auth.http, otherwise=rights)
    closers = (authenticator.close, authoriser.close)
    return Access(throttled(authenticator), authoriser, closers)


def _authenticator(auth: AuthSettings) -> CredAuthenticator | None:
    if not auth.is_checked:
        return None
    return CredAuthenticator(
        checkers_from(auth.checkers),
        anonymous=bool(auth.anonymous),
        groups=auth.groups,
        certificate_users=auth.certificate_users,
    )


def store(settings: StoreSettings) -> MessageStore | None:
    """Make the store, which is not opened yet; ValueError says what is wrong."""
    if settings.effective_kind == "lmdb":
        assert settings.path is not None  # settings are checked
        return LmdbStore(
            Path(settings.path).absolute(),
            synchronous=settings.is_synchronous,
            max_octets=settings.max_octets,
        )
    if settings.effective_kind == "sqlalchemy":
        from stompkit.server.stores.sqlalchemy import SqlAlchemyStore

        assert settings.url is not None  # settings are checked
        return SqlAlchemyStore(settings.url, synchronous=settings.is_synchronous)
    return None


def has_lmdb(directory: Path) -> bool:
    """Whether there is a store of the kind ``lmdb`` in a broker's directory of data."""
    return (directory / DIRECTORY / DATA_FILE).is_file()


def factory(
    settings: Settings,
    decided_by: Access,
    reactor: IReactorTime,
    clock: IReactorTime,
    make: MakeFactory = BrokerFactory,
) -> BrokerFactory:
    """Make a broker that listens nowhere yet, and whose store is not open; it goes by ``clock``."""
    messages = store(settings.store)
    if messages is not None:
        sys.setswitchinterval(_SWITCH_S)
    from_thread = cast("IReactorFromThreads", reactor).callFromThread
    return make(
        settings.config,
        clock,
        store=messages,
        runner=None if messages is None else ThreadRunner(from_thread),
        sync_interval_s=settings.store.sync_interval_s,
        authenticator=decided_by.authenticator,
        authoriser=decided_by.authoriser,
    )
