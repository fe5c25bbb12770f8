"""Users and rights, as the API shows them: never with passcodes."""

from __future__ import annotations

from collections import Counter
from typing import Final, Literal

from msgspec import Struct

from stompkit._common.secrets import mask_url
from stompkit.server.admin.context import Context
from stompkit.server.admin.views import text_of
from stompkit.server.domain.session.base import sessions_of
from stompkit.server.login.rights import Rights

__all__ = ["AccessShape", "Me", "RightShape", "UserShape", "access_shape"]

#: Maximum number of users in an answer.
_MOST_USERS: Final = 1_000
#: Kinds of checkers whose argument is a path; the argument of others may contain passcodes.
_WITH_PATH: Final = ("stompkit", "file", "ini", "json")


class Me(Struct, kw_only=True):
    """The sender of the request: a reader cannot change anything."""

    role: Literal["reader", "operator"]


class UserShape(Struct, kw_only=True):
    """A user that is known from a file or a connection."""

    name: str
    groups: list[str]
    connections: int


class RightShape(Struct, kw_only=True):
    """A rule of ``[[rights]]``; without users and groups it is for everybody."""

    destination: str
    allow: list[Literal["create", "read", "write", "admin"]]
    users: list[str]
    groups: list[str]
    hosts: list[str]


class AccessShape(Struct, kw_only=True):
    """Login and permissions of clients.

    ``checkers`` are the kinds of checkers and their files; ``service`` is the URL of an HTTP
    service that decides instead of files and rules. ``users`` has the first of ``total`` users.
    Without rules, everything is allowed.
    """

    is_checked: bool
    is_anonymous_allowed: bool
    is_certificate_login: bool
    checkers: list[str]
    service: str | None
    total: int
    users: list[UserShape]
    rights: list[RightShape]


def access_shape(context: Context) -> AccessShape:
    """Return login and permissions as they are in force now."""
    access = context.access()
    auth = access.auth
    groups = {name: set(given) for name, given in access.users().items()}
    connections: Counter[str] = Counter()
    for each in sessions_of(context.broker):
        if each.user.name:
            connections[each.user.name] += 1
            groups.setdefault(each.user.name, set()).update(each.user.groups)
    names = sorted(groups)
    return AccessShape(
        is_checked=auth.is_checked,
        is_anonymous_allowed=bool(auth.anonymous) or not auth.is_checked,
        is_certificate_login=auth.certificate_users,
        checkers=[_without_secrets(each) for each in auth.checkers],
        service=None if auth.http is None else mask_url(auth.http.url),
        total=len(names),
        users=[
            UserShape(
                name=text_of(name),
                groups=sorted(map(text_of, groups[name])),
                connections=connections[name],
            )
            for name in names[:_MOST_USERS]
        ],
        rights=[_right_shape(each) for each in access.rights],
    )


def _without_secrets(checker: str) -> str:
    kind, _, argument = checker.partition(":")
    return f"{kind}:{argument}" if kind in _WITH_PATH else kind


def _right_shape(rule: Rights) -> RightShape:
    return RightShape(
        destination=rule.destination,
        allow=list(rule.allow),
        users=list(rule.users),
        groups=list(rule.groups),
        hosts=list(rule.hosts),
    )
