"""Authenticate clients by ``twisted.cred`` checkers, TLS client certificates, or as anonymous."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hmac import compare_digest
from pathlib import Path
from traceback import extract_tb
from typing import Final, Protocol, cast, runtime_checkable

from twisted.cred.checkers import (
    ICredentialsChecker,
    InMemoryUsernamePasswordDatabaseDontUse,
)
from twisted.cred.credentials import IAnonymous, IUsernameHashedPassword, IUsernamePassword
from twisted.cred.error import LoginFailed, UnauthorizedLogin
from twisted.cred.strcred import ICheckerFactory, InvalidAuthArgumentString
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.plugin import getPlugins
from zope.interface import implementer
from zope.interface.interface import InterfaceClass

from stompkit._common.files import describe
from stompkit.server.interfaces import Credentials, User
from stompkit.server.log import login_events
from stompkit.server.login.limited_authenticator import Decided, ReloadedSource

__all__ = [
    "CantCheckNow",
    "CredAuthenticator",
    "GroupSource",
    "UserSource",
    "certificate_user",
    "checkers_from",
    "is_name",
]


#: Maximum length in bytes of UTF-8: more than the longest e-mail address.
MAX_NAME_BYTES: Final = 320


class CantCheckNow(UnauthorizedLogin):
    """A checker cannot decide and therefore refuses; it does not count as a wrong passcode."""


@runtime_checkable
class GroupSource(Protocol):
    """A checker that also knows the groups of users."""

    def groups_of(self, user: str) -> Iterable[str]:
        """Return the groups of a user; empty for an unknown user."""


@runtime_checkable
class UserSource(Protocol):
    """A checker that can list its users."""

    def user_names(self) -> Iterable[str]:
        """Return the names of all users."""


class CredAuthenticator:
    """Asks credentials checkers, in order, until one accepts the login and passcode.

    Checkers are asked about an empty passcode only if they have a true attribute
    ``compares_empty_passcodes``. A user is identified by name, whichever checker accepted it. Its
    groups are those of ``groups``, a mapping from groups to members, and of every checker that
    knows groups.
    """

    def __init__(
        self,
        checkers: Sequence[ICredentialsChecker],
        *,
        anonymous: bool = False,
        groups: Mapping[str, Sequence[str]] | None = None,
        certificate_users: bool = False,
    ) -> None:
        """Start with the checkers.

        ``anonymous`` accepts clients without a login, as does a checker for anonymous ones among
        ``checkers``. ``certificate_users`` logs in clients with a certificate, by
        :func:`certificate_user`. Raises ValueError for a checker that cannot check passcodes.
        """
        self._checkers: list[ICredentialsChecker] = []
        self._anonymous = anonymous
        self._certificate_users = certificate_users
        self._groups = groups or {}
        self._sources = [checker for checker in checkers if isinstance(checker, GroupSource)]
        for checker in checkers:
            if _can_check(checker, IUsernamePassword, IUsernameHashedPassword):
                self._checkers.append(checker)
            elif _can_check(checker, IAnonymous):
                self._anonymous = True
            else:
                raise ValueError(f"{type(checker).__name__} checks neither passcodes nor anonymity")

    def known_users(self) -> dict[str, frozenset[str]]:
        """Return the users in the checkers' files, and in the groups, each with its groups."""
        names = {name for members in self._groups.values() for name in members}
        for checker in self._checkers:
            if isinstance(checker, UserSource):
                names.update(checker.user_names())
        return {name: self._user(name).groups for name in names}

    def reloads(self) -> int:
        """Return how often the checkers' files have changed."""
        return sum(each.reloads() for each in self._checkers if isinstance(each, ReloadedSource))

    def authenticate(self, credentials: Credentials, answer: Callable[[User | None], None]) -> None:
        """Find the user; see :class:`~stompkit.server.interfaces.Authenticator`."""
        self.decide(credentials, lambda decided: answer(decided.user))

    def decide(self, credentials: Credentials, answer: Callable[[Decided], None]) -> None:
        """Find the user, and report if the decision is certain."""
        found = Deferred.fromCoroutine(self._find_or_refuse(credentials))
        found.addCallback(answer)
        found.addErrback(lambda failure: login_events.login_error(failure=failure))

    async def _find_or_refuse(self, credentials: Credentials) -> Decided:
        try:
            return await self._find(credentials)
        except Exception as error:
            login_events.login_check_failed(
                peer=credentials.peer or "unix",
                # Without its message, which may contain the passcode.
                error=type(error).__name__,
                place=_place(error),
            )
            return Decided(None, is_certain=False)

    async def _find(self, credentials: Credentials) -> Decided:
        if credentials.login or credentials.passcode:
            return await self._find_by_passcode(credentials)
        if self._certificate_users and credentials.certificate is not None:
            name = certificate_user(credentials.certificate)
            if name is not None:
                return Decided(self._user(name))
        return Decided(User() if self._anonymous else None)

    async def _find_by_passcode(self, credentials: Credentials) -> Decided:
        name, passcode = credentials.login, credentials.passcode
        if not name or passcode is None or not is_name(name):
            return Decided(None)
        login = _Login(name, passcode)
        is_certain = True
        for checker in self._checkers:
            # Some directories treat an empty passcode as an anonymous login, and accept it.
            if not passcode and not getattr(checker, "compares_empty_passcodes", False):
                continue
            try:
                avatar: object = await maybeDeferred(checker.requestAvatarId, login)
            except CantCheckNow:
                is_certain = False
                continue
            except LoginFailed:
                continue
            return Decided(self._of_avatar(avatar))
        return Decided(None, is_certain)

    def _of_avatar(self, avatar: object) -> User:
        if avatar == ():
            return User()
        name = avatar.decode() if isinstance(avatar, bytes) else avatar
        if not isinstance(name, str) or not is_name(name):
            raise TypeError("a checker gave something that is no name of a user")
        return self._user(name)

    def _user(self, name: str) -> User:
        groups = {group for group, members in self._groups.items() if name in members}
        for source in self._sources:
            groups.update(source.groups_of(name))
        return User(name, frozenset(groups))


@implementer(IUsernamePassword, IUsernameHashedPassword)
class _Login:
    """A login and passcode, for both kinds of passcode checkers."""

    def __init__(self, login: str, passcode: str) -> None:
        self.username = login.encode()
        self.password = passcode.encode()

    def checkPassword(self, password: bytes) -> bool:
        """Compare in constant time."""
        return compare_digest(self.password, password)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.username!r})"


def is_name(name: str) -> bool:
    """Return True if a user name is valid: printable, and at most 320 bytes."""
    return bool(name) and name.isprintable() and len(name.encode()) <= MAX_NAME_BYTES


def certificate_user(certificate: bytes) -> str | None:
    """Return the user of a certificate (DER): its common name.

    Without one, return the e-mail address among its alternative names. Return ``None`` if there are
    several of either, or the value is no valid name.
    """
    from cryptography.x509 import (
        ExtensionNotFound,
        RFC822Name,
        SubjectAlternativeName,
        load_der_x509_certificate,
    )
    from cryptography.x509.oid import NameOID

    try:
        parsed = load_der_x509_certificate(certificate)
        names = [
            str(attribute.value)
            for attribute in parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        ]
        if not names:
            others = parsed.extensions.get_extension_for_class(SubjectAlternativeName).value
            names = others.get_values_for_type(RFC822Name)
    except (ValueError, ExtensionNotFound):
        return None
    return names[0] if len(names) == 1 and is_name(names[0]) else None


def _can_check(checker: ICredentialsChecker, *wanted: InterfaceClass) -> bool:
    return any(interface in wanted for interface in checker.credentialInterfaces)


def _place(error: BaseException) -> str:
    frames = extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"


class _Kind(Protocol):
    """The part of an ICheckerFactory that ``twisted.cred.strcred`` uses."""

    authType: str
    argStringFormat: str

    def generateChecker(self, argstring: str) -> ICredentialsChecker: ...


def checkers_from(descriptions: Iterable[str]) -> list[ICredentialsChecker]:
    """Create checkers from descriptions, such as ``stompkit:FILE`` or ``unix``.

    Raises ValueError with the kind of the invalid description, the reason and the known kinds. The
    message does not quote the description, which may contain passcodes.
    """
    kinds: dict[str, _Kind] = {}
    for factory in cast("Iterable[_Kind]", getPlugins(ICheckerFactory)):
        kinds.setdefault(factory.authType, factory)
    return [_checker(kinds, description) for description in descriptions]


def _checker(kinds: Mapping[str, _Kind], description: str) -> ICredentialsChecker:
    name, _, arguments = description.partition(":")
    kind = kinds.get(name)
    if kind is None:
        known = ", ".join(sorted(kinds))
        raise ValueError(f"there is no kind {name[:40]!r} of authentication; there are {known}")
    try:
        if name == "file":
            # Twisted's factory continues without the file, and accepts nobody.
            Path(arguments).open("rb").close()
        checker = kind.generateChecker(arguments)
        if isinstance(checker, InMemoryUsernamePasswordDatabaseDontUse):
            # Twisted's factory keeps str, and compares it with bytes.
            texts = cast("dict[str, str]", checker.users)
            checker.users = {user.encode(): word.encode() for user, word in texts.items()}
        return checker
    except OSError as error:
        cure = (
            f": create it with `stompkit passwd {error.filename} USER`"
            if name == "stompkit" and isinstance(error, FileNotFoundError)
            else ""
        )
        raise ValueError(f"authentication by {name}: {describe(error)}{cure}") from None
    except InvalidAuthArgumentString:
        raise ValueError(
            f"authentication by {name} needs other arguments: {kind.argStringFormat}"
        ) from None
    except ValueError as error:
        raise ValueError(f"authentication by {name}: {error}") from None
