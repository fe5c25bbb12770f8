"""Build a broker from its settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads, IReactorTime

from stompkit.server.interfaces import Authenticator, Authoriser, Clock, MessageStore
from stompkit.server.listen.factory import BrokerFactory
from stompkit.server.login.auth import CredAuthenticator, checkers_from
from stompkit.server.login.limited_authenticator import Decider, LimitedAuthenticator
from stompkit.server.login.login_limiter import LoginLimiter
from stompkit.server.login.rights import Rights, RightsAuthoriser
from stompkit.server.process.activation import Activation, AlwaysActive
from stompkit.server.process.lock_activation import LockActivation
from stompkit.server.settings.process import AuthSettings, Settings, StoreSettings
from stompkit.server.stores.runner import ThreadRunner

__all__ = ["Access", "MakeFactory", "access", "activation", "factory", "has_lmdb", "store"]

#: Switch interval in seconds between threads. A store's thread releases the interpreter in each of
#: its many short calls. With Python's default of 5 ms it would wait for the busy reactor thread
#: each time, and halve the rate of persistent messages.
_SWITCH_S: Final = 0.0005


#: Creates the factory of protocols: :class:`BrokerFactory`, or a callable with its signature.
MakeFactory: TypeAlias = Callable[..., BrokerFactory]


class Access(NamedTuple):
    """Authenticator and authoriser, with functions to release their resources."""

    authenticator: Authenticator | None
    authoriser: Authoriser | None
    closers: tuple[Callable[[], Deferred[None]], ...] = ()
    #: The settings of both, and a function that returns the known users with their groups.
    auth: AuthSettings = AuthSettings()
    rights: tuple[Rights, ...] = ()
    users: Callable[[], Mapping[str, frozenset[str]]] = dict

    async def close(self) -> None:
        """Close connections to external services."""
        for close in self.closers:
            await close()


def access(settings: Settings, clock: Clock) -> Access:
    """Create authenticator and authoriser; raises ValueError or OSError for invalid settings."""
    auth = settings.auth
    rights = None
    if settings.rights:
        rights = RightsAuthoriser(settings.rights)

    def throttled(decider: Decider) -> Authenticator:
        login_limiter = LoginLimiter(auth.throttle)
        timeout_s = settings.broker.login_timeout_s
        return LimitedAuthenticator(decider, login_limiter, clock, login_timeout_s=timeout_s)

    if auth.http is None:
        decider = _authenticator(auth)
        return Access(
            None if decider is None else throttled(decider),
            rights,
            auth=auth,
            rights=settings.rights,
            users=dict if decider is None else decider.known_users,
        )
    from stompkit.server.login.http_authoriser import HttpAuthenticator, HttpAuthoriser

    authenticator = HttpAuthenticator(auth.http)
    authoriser = HttpAuthoriser(auth.http, otherwise=rights)
    closers = (authenticator.close, authoriser.close)
    return Access(throttled(authenticator), authoriser, closers, auth, settings.rights)


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
    """Create the store without opening it; raises ValueError for invalid settings."""
    if settings.effective_kind == "lmdb":
        from stompkit.server.stores.lmdb import LmdbStore

        assert settings.path is not None  # settings are checked
        return LmdbStore(
            Path(settings.path).absolute(),
            synchronous=settings.is_synchronous,
            max_octets=settings.max_octets,
        )
    if settings.effective_kind == "sqlalchemy":
        from stompkit.server.stores.sql import sql_store

        url = settings.database_url
        assert url is not None  # settings are checked
        return sql_store(url, synchronous=settings.is_synchronous)
    return None


def activation(settings: Settings, reactor: IReactorTime) -> Activation:
    """Return the way in which the broker becomes active; raises ValueError for an invalid URL."""
    if settings.high_availability.lease is not None:
        from stompkit.server.process.lease_activation import LeaseActivation

        return LeaseActivation(settings.store, settings.high_availability, reactor)
    path = settings.store.path
    if path is None:
        return AlwaysActive()
    return LockActivation(Path(path).absolute(), settings.store.lock_timeout_s, reactor)


def has_lmdb(directory: Path) -> bool:
    """Return True if a broker's data directory contains a store of the kind ``lmdb``."""
    from stompkit.server.stores.environment import DATA_FILE, DIRECTORY

    return (directory / DIRECTORY / DATA_FILE).is_file()


def factory(
    settings: Settings,
    decided_by: Access,
    reactor: IReactorTime,
    clock: IReactorTime,
    make: MakeFactory = BrokerFactory,
) -> BrokerFactory:
    """Create a broker on ``clock`` that does not listen yet, and whose store is not open."""
    # With a lease, the store is opened by the broker that has it.
    is_leased = settings.high_availability.lease is not None
    messages = None if is_leased else store(settings.store)
    if settings.store.has_store:
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
