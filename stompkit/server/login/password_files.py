"""Password files: stompkit's own with hashes, and two in plain text, one of them CoilMQ's."""

from __future__ import annotations

import hashlib
import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from configparser import Error as ConfigError
from configparser import ParsingError, RawConfigParser
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final, NamedTuple

from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.credentials import IUsernameHashedPassword, IUsernamePassword
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import Deferred, DeferredSemaphore, maybeDeferred
from zope.interface import implementer

from stompkit.server.log import login_events
from stompkit.server.login.auth import CantCheckNow
from stompkit.server.login.scrypt import Scrypt, compute_beside, processes_beside
from stompkit.server.process.watched_files import Watched

__all__ = [
    "DEFAULT_COST",
    "Cost",
    "HashedPasswordFile",
    "IniPasswordFile",
    "JsonPasswordFile",
    "hash_passcode",
]


_SALT_BYTES: Final = 16
_KEY_BYTES: Final = 32
#: Maximum memory in bytes of scrypt: a line of the file must not exhaust the machine at each login.
_MAX_SCRYPT_BYTES: Final = 256 * 1024 * 1024
_MAX_PARALLELISM: Final = 16


class Cost(NamedTuple):
    """Cost of a verification: 128 * 2**log2_n * r bytes, ``p`` times (RFC 7914, 2)."""

    log2_n: int
    r: int
    p: int

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes that scrypt uses."""
        return 128 * self.r * (1 << self.log2_n)


#: 16 MiB and about a fifth of a second: as strong as OWASP's first choice with an eighth of the
#: memory, since a broker may check several logins at a time.
DEFAULT_COST: Final = Cost(log2_n=14, r=8, p=5)


class _Hash(NamedTuple):
    """A hashed passcode, as ``scrypt$ln=14,r=8,p=5$SALT$KEY``."""

    cost: Cost
    salt: bytes
    key: bytes

    def work(self, passcode: bytes) -> Scrypt:
        """Return the computation that gives the key for the right passcode."""
        return Scrypt(passcode, self.salt, *self.cost, len(self.key))

    def __str__(self) -> str:
        log2_n, r, p = self.cost
        return f"scrypt$ln={log2_n},r={r},p={p}${_encoded(self.salt)}${_encoded(self.key)}"

    @classmethod
    def parse(cls, text: str) -> _Hash:
        """Parse the output of :meth:`__str__`; raises ValueError without quoting the text."""
        parts = text.split("$")
        if len(parts) != 4 or parts[0] != "scrypt":
            raise ValueError("a passcode is not of the form scrypt$ln=14,r=8,p=5$SALT$KEY")
        try:
            settings = dict(setting.split("=") for setting in parts[1].split(","))
            cost = Cost(int(settings["ln"]), int(settings["r"]), int(settings["p"]))
            salt, key = (
                b64decode(part + "=" * (-len(part) % 4), validate=True) for part in parts[2:]
            )
        except (KeyError, ValueError):
            raise ValueError("the settings, salt or key of a passcode cannot be read") from None
        if not (1 <= cost.log2_n <= 24 and cost.r >= 1 and 1 <= cost.p <= _MAX_PARALLELISM):
            raise ValueError("the settings of a passcode are out of range")
        if cost.memory_bytes > _MAX_SCRYPT_BYTES:
            raise ValueError("the settings of a passcode ask for more than 256 MiB")
        if len(salt) < 8 or len(key) < 16:
            raise ValueError("the salt or key of a passcode is too short")
        return cls(cost, salt, key)


def hash_passcode(passcode: str, cost: Cost = DEFAULT_COST) -> str:
    """Return the second field of a line in a password file, with a new salt each time."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return str(_Hash(cost, salt, Scrypt(passcode.encode(), salt, *cost, _KEY_BYTES)()))


def _encoded(data: bytes) -> str:
    return b64encode(data).decode("ascii").rstrip("=")


class _Entry(NamedTuple):
    hash: _Hash
    groups: frozenset[str]


class _Users:
    """Content of the file, and passcodes verified since it was read."""

    def __init__(self, entries: Mapping[bytes, _Entry]) -> None:
        self.entries = entries
        self.proofs: dict[bytes, bytes] = {}
        # An unknown name takes as long as a known one.
        cost = next((entry.hash.cost for entry in entries.values()), DEFAULT_COST)
        self.decoy = _Hash(cost, secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_KEY_BYTES))


@implementer(ICredentialsChecker)
class HashedPasswordFile:
    """A file with lines ``user:scrypt$...:group,group``, reloaded when it changes.

    Hashes are computed in separate low-priority processes, a few at a time. A right passcode is
    remembered as a keyed digest until the file changes. A thousand clients of one user that
    reconnect at once then need not wait for a thousand hashes.
    """

    credentialInterfaces = (IUsernamePassword,)

    def __init__(
        self,
        path: Path,
        *,
        max_concurrent: int | None = None,
        max_waiting: int = 1_000,
        compute: Callable[[Scrypt], Deferred[bytes]] = compute_beside,
    ) -> None:
        """Read the file; raises OSError or ValueError for an invalid one.

        At most ``max_concurrent`` hashes are computed at a time, by default on all processors but
        one. At most ``max_waiting`` logins wait; further ones are refused.
        """
        self._file = Watched([path], lambda: _read_hashed(path))
        self._slots = DeferredSemaphore(max_concurrent or processes_beside())
        self._max_waiting = max_waiting
        self._compute = compute
        self._secret = secrets.token_bytes(32)

    def requestAvatarId(self, credentials: IUsernamePassword) -> Deferred[bytes | tuple[()]]:
        """Return the user's name, or fail with UnauthorizedLogin."""
        return Deferred.fromCoroutine(self._check(credentials.username, credentials.password))

    def user_names(self) -> list[str]:
        """Return the names of all users."""
        return [name.decode() for name in self._file.get().entries]

    def reloads(self) -> int:
        """Return how often the file has changed and was read again."""
        return _reloads(self._file)

    def groups_of(self, user: str) -> frozenset[str]:
        """Return the groups of a user according to the file."""
        entry = self._file.get().entries.get(user.encode())
        return frozenset() if entry is None else entry.groups

    async def _check(self, name: bytes, passcode: bytes) -> bytes | tuple[()]:
        users = self._file.get()
        entry = users.entries.get(name)
        stored = users.decoy if entry is None else entry.hash
        proof = hashlib.blake2b(stored.key + passcode, key=self._secret).digest()
        if compare_digest(users.proofs.get(name, b""), proof):
            return name
        if len(self._slots.waiting) >= self._max_waiting:
            login_events.passcode_checks_busy()
            raise CantCheckNow
        await self._slots.acquire()
        try:
            key = await self._compute(stored.work(passcode))
        finally:
            self._slots.release()
        if not compare_digest(key, stored.key) or entry is None:
            raise UnauthorizedLogin
        users.proofs[name] = proof
        return name


def _read_hashed(path: Path) -> _Users:
    entries: dict[bytes, _Entry] = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            name, _, rest = line.strip().partition(":")
            passcode, _, groups = rest.partition(":")
            if not name or name.encode() in entries:
                raise ValueError("no name, or one that has a line already")
            members = frozenset(group.strip() for group in groups.split(",") if group.strip())
            entries[name.encode()] = _Entry(_Hash.parse(passcode), members)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    return _Users(entries)


class _ClearPasswordFile:
    """A file with passcodes in plain text, reloaded when it changes."""

    credentialInterfaces = (IUsernamePassword, IUsernameHashedPassword)

    def __init__(self, path: Path, read: Callable[[Path], Mapping[bytes, bytes]]) -> None:
        self._file = Watched([path], lambda: read(path))

    def user_names(self) -> list[str]:
        """Return the names of all users."""
        return [name.decode() for name in self._file.get()]

    def reloads(self) -> int:
        """Return how often the file has changed and was read again."""
        return _reloads(self._file)

    def requestAvatarId(self, credentials: IUsernameHashedPassword) -> Deferred[bytes | tuple[()]]:
        """Return the user's name, or fail with UnauthorizedLogin."""
        return Deferred.fromCoroutine(self._check(credentials))

    async def _check(self, credentials: IUsernameHashedPassword) -> bytes | tuple[()]:
        name = credentials.username
        stored = self._file.get().get(name)
        decoy = secrets.token_bytes(_KEY_BYTES)
        is_right = await maybeDeferred(
            credentials.checkPassword, decoy if stored is None else stored
        )
        if stored is None or not is_right:
            raise UnauthorizedLogin
        return name


@implementer(ICredentialsChecker)
class IniPasswordFile(_ClearPasswordFile):
    """A file with ``user = passcode`` in a section ``[auth]``, reloaded when it changes.

    It has the format of CoilMQ, except that names keep their case, and ``%`` has no special
    meaning.
    """

    def __init__(self, path: Path) -> None:
        """Read the file; raises OSError or ValueError for an invalid one."""
        super().__init__(path, _read_ini)


@implementer(ICredentialsChecker)
class JsonPasswordFile(_ClearPasswordFile):
    """A file with a JSON object of users and their passcodes, reloaded when it changes.

    Names and passcodes may contain any characters, including colons and blanks. A passcode can be
    empty.
    """

    #: See :class:`~stompkit.server.login.auth.CredAuthenticator`.
    compares_empty_passcodes = True

    def __init__(self, path: Path) -> None:
        """Read the file; raises OSError or ValueError for an invalid one."""
        super().__init__(path, _read_json)


class _IniParser(RawConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr


def _read_ini(path: Path) -> Mapping[bytes, bytes]:
    # No section is special: otherwise names under [DEFAULT] would be users, too.
    parser = _IniParser(default_section="")
    try:
        parser.read_string(_text(path))
    except ConfigError as error:
        # The parser's own message quotes the line, which may contain a passcode.
        number = getattr(error, "lineno", None)
        if number is None and isinstance(error, ParsingError):
            number = error.errors[0][0]
        raise ValueError(f"{path}, line {number}: not as an INI file should be") from None
    if not parser.has_section("auth"):
        raise ValueError(f"{path}: there is no section [auth]")
    return {name.encode(): value.encode() for name, value in parser.items("auth")}


def _read_json(path: Path) -> Mapping[bytes, bytes]:
    try:
        users = json.loads(_text(path))
    except ValueError as error:
        number = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        raise ValueError(f"{path}, line {number}: not JSON") from None
    if not isinstance(users, dict) or not all(isinstance(each, str) for each in users.values()):
        raise ValueError(f"{path}: not a JSON object of users and passcodes")
    return {name.encode(): passcode.encode() for name, passcode in users.items()}


def _reloads(file: Watched[Any]) -> int:
    file.get()
    return file.reloads


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8") from None
