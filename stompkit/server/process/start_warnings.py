"""Warnings about settings that are valid, but probably not what their author means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stompkit._common.spelling import did_you_mean
from stompkit.server.listen.endpoints import PROXIED, arguments_of
from stompkit.server.login.auth import CredAuthenticator, GroupSource, UserSource, checkers_from
from stompkit.server.settings.endpoint_checks import is_local
from stompkit.server.settings.process import Settings, StoreSettings

__all__ = ["start_warnings"]

#: Kinds of endpoints whose address is known from their description.
_TCP: Final = ("tcp", "tcp6", "ssl", "stomps")


def start_warnings(settings: Settings) -> Iterator[str]:
    """Yield the warnings, each with its place in the settings."""
    yield from _open_endpoints(settings)
    yield from _memory_only(settings.store)
    yield from _rights_of_nobody(settings)


def _open_endpoints(settings: Settings) -> Iterator[str]:
    if settings.auth.is_checked or settings.auth.anonymous:
        return
    places = [
        (f"[[listen]] #{number} endpoint", each)
        for number, each in enumerate(settings.descriptions, 1)
    ]
    places += [
        (f"[[websocket]] #{number} endpoint", each.endpoint)
        for number, each in enumerate(settings.websockets, 1)
    ]
    for place, description in places:
        inner = description.removeprefix(PROXIED)
        kind, _ = arguments_of(inner)
        if kind in _TCP and not is_local(inner):
            yield (
                f"{place}: {description} is open to everybody who can reach this machine, since no"
                " login is checked. Add [auth] with checkers, or anonymous = true if that is meant"
            )


def _memory_only(store: StoreSettings) -> Iterator[str]:
    if store != StoreSettings() and store.kind is None and not store.has_store:
        yield (
            "[store]: there is neither path nor url, so messages are in memory only and a restart"
            " loses them. Add path, or remove [store]"
        )


def _rights_of_nobody(settings: Settings) -> Iterator[str]:
    groups = _known_groups(settings)
    for number, rule in enumerate(settings.rights, 1):
        if not (rule.users or rule.groups):
            continue
        if not settings.auth.is_checked:
            yield (
                f"[[rights]] #{number}: it allows nobody anything, since no login is checked and no"
                " client has a name. Add [auth] with checkers"
            )
            continue
        for group in rule.groups:
            if groups is not None and group not in groups:
                yield (
                    f'[[rights]] #{number} groups: nobody is in the group "{group[:100]}"'
                    f"{did_you_mean(group, sorted(groups))}"
                )


def _known_groups(settings: Settings) -> set[str] | None:
    """Return the groups that have members, or None if only a service or a plug-in knows them."""
    auth = settings.auth
    if auth.http is not None:
        return None
    checkers = checkers_from(auth.checkers)
    if any(isinstance(each, GroupSource) and not isinstance(each, UserSource) for each in checkers):
        return None
    known = CredAuthenticator(checkers, groups=auth.groups).known_users()
    return {name for name, members in auth.groups.items() if members}.union(*known.values())
