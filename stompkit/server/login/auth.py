"""Who a client is: logins checked by ``twisted.cred``, TLS client certificates, nobody."""

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
from twisted.logger import Logger
from twisted.plugin import getPlugins
from zope.interface import implementer
from zope.interface.interface import InterfaceClass

from stompkit.server.interfaces import Credentials, User
from stompkit.server.login.limited_authenticator import Decided

__all__ = [
    "CantCheckNow",
    "CredAuthenticator",
    "GroupSource",
    "certificate_user",
    "checkers_from",
    "is_name",
]

_log: Final = Logger()

#: Octets of UTF-8: what the longest e-mail address takes, with room to spare.
MAX_NAME_BYTES: Final = 320


class CantCheckNow(UnauthorizedLogin):
    """A checker does not know, and says no for that; nobody has guessed wrong."""


@runtime_checkable
class GroupSource(Protocol):
    """A checker that also knows which groups a user is in."""

    def groups_of(self, user: str) -> Iterable[str]:
        """The groups of a user, none for somebody unknown."""


class CredAuthenticator:
    """Asks credentials checkers, in order, until one of them knows the login and passcode.

    A user is a name, whoever has checked it: its groups are those of ``groups``, from group to
    members, and of every checker that knows groups.
    """

    def __init__(
        self,
        checkers: Sequence[ICredentialsChecker],
        *,
        anonymous: bool = False,
        groups: Mapping[str, Sequence[str]] | None = None,
        certificate_users: bool = False,
    ) -> None:
        """Take what to ask.

        ``anonymous`` lets clients in that send no login, as does a checker for anonymous ones
        among ``checkers``; ``certificate_users`` logs those in, by :func:`certificate_user`, that
        have shown a certificate. Raises ValueError for a checker that knows no passcodes.
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

    def authenticate(self, credentials: Credentials, answer: Callable[[User | None], None]) -> None:
        """Find the user; see :class:`~stompkit.server.interfaces.Authenticator`."""
        self.decide(credentials, lambda decided: answer(decided.user))

    def decide(self, credentials: Credentials, answer: Callable[[Decided], None]) -> None:
        """Find the user, and say whether it could be found out who it is."""
        found = Deferred.fromCoroutine(self._find_or_refuse(credentials))
        found.addCallback(answer)
        found.addErrback(lambda failure: _log.failure("after a login", failure))

    async def _find_or_refuse(self, credentials: Credentials) -> Decided:
        try:
            return await self._find(credentials)
        except Exception as error:
            _log.error(
                "{peer} is turned away, since its login can't be checked: {error} at {place}",
                peer=credentials.peer,
                # Not its message, which may hold the passcode.
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
        # Some directories take an empty passcode for a wish to be anonymous, and say yes.
        if not name or not passcode or not is_name(name):
            return Decided(None)
        login = _Login(name, passcode)
        is_certain = True
        for checker in self._checkers:
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
    """A login and passcode, for checkers that want the passcode and those that give theirs."""

    def __init__(self, login: str, passcode: str) -> None:
        self.username = login.encode()
        self.password = passcode.encode()

    def checkPassword(self, password: bytes) -> bool:
        """Compare in a time that does not depend on where the two differ."""
        return compare_digest(self.password, password)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.username!r})"


def is_name(name: str) -> bool:
    """Whether a user may be called this: something printable of at most 320 octets."""
    return bool(name) and name.isprintable() and len(name.encode()) <= MAX_NAME_BYTES


def certificate_user(certificate: bytes) -> str | None:
    """The user whom a certificate (DER) stands for: its common name.

    Where it has none, the e-mail address among its alternative names; ``None`` where there are
    several of either, or what there is can't be a name.
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
    """What ``twisted.cred.strcred`` says of an ICheckerFactory."""

    authType: str
    argStringFormat: str

    def generateChecker(self, argstring: str) -> ICredentialsChecker: ...


def checkers_from(descriptions: Iterable[str]) -> list[ICredentialsChecker]:
    """Make checkers from descriptions, as ``stompkit:FILE`` or ``unix``.

    ValueError says which description is wrong and why, and which kinds there are; not what the
    description holds, which may be passcodes.
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
            # Twisted's factory goes on without the file, and lets nobody in.
            Path(arguments).open("rb").close()
        checker = kind.generateChecker(arguments)
        if isinstance(checker, InMemoryUsernamePasswordDatabaseDontUse):
            # Twisted's factory keeps texts, and compares them with octets.
            texts = cast("dict[str, str]", checker.users)
            checker.users = {user.encode(): word.encode() for user, word in texts.items()}
        return checker
    except OSError as error:
        raise ValueError(f"authentication by {name}: {error.filename}: {error.strerror}") from None
    except InvalidAuthArgumentString:
        raise ValueError(
            f"authentication by {name} needs other arguments: {kind.argStringFormat}"
        ) from None
    except ValueError as error:
        raise ValueError(f"authentication by {name}: {error}") from None
