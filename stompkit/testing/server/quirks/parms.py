"""MorbidQ's modules of users and access rights, for the broker that emulates MorbidQ.

Such a module, given to MorbidQ by its option ``-a``, has a class ``Parms`` with three methods:

``checker_config()``
    a dictionary whose ``sec_type`` says who is let in: ``any`` (or nothing) everybody; ``test`` the
    users ``usr0`` with ``pwd0`` to ``usr9`` with ``pwd9``, or as many as ``id_count`` says;
    ``file`` the users of ``filename``, a line each, with ``delim``, ``usernameField``,
    ``passwordField`` and ``caseSensitive`` as in Twisted's ``FilePasswordDB``.
``group_config()``
    a function that gives the groups of a user.
``get_group_access_rights()``
    a function of groups and a destination that gives the rights there, out of ``c`` (create),
    ``r`` (read) and ``w`` (write).
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Collection, Iterable, Mapping
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final

from twisted.cred.checkers import FilePasswordDB
from twisted.cred.error import UnauthorizedLogin

from stompkit.server import Action, Credentials, Decision, Request, User

__all__ = ["Parms"]

_METHODS: Final = ("checker_config", "group_config", "get_group_access_rights")
_LETTERS: Final = {Action.CREATE: "c", Action.READ: "r", Action.WRITE: "w"}
_TEST_USERS: Final = 10
_FILE_KEYS: Final = ("delim", "usernameField", "passwordField", "caseSensitive")


class Parms:
    """Decides as such a module does: an Authenticator and an Authoriser of a broker."""

    def __init__(self, path: Path) -> None:
        """Run the module.

        Raises ValueError for an invalid module or one that fails, and OSError for a file that
        cannot be read.
        """
        path.read_bytes()
        try:
            parms = runpy.run_path(str(path)).get("Parms")
        except Exception as error:
            raise ValueError(f"{path}: {type(error).__name__}: {error}") from error
        missing = [name for name in _METHODS if not callable(getattr(parms, name, None))]
        if not isinstance(parms, type) or missing:
            raise ValueError(f"{path}: there has to be a class Parms with {', '.join(_METHODS)}")
        made: Any = parms()
        self._is_right = _checker(made.checker_config(), path)
        self._groups: Callable[[str], Iterable[str]] = made.group_config()
        self._rights: Callable[[list[str], str], Collection[str]] = made.get_group_access_rights()

    def authenticate(self, credentials: Credentials, answer: Callable[[User | None], None]) -> None:
        """Check a login, and return the groups of the user."""
        name = credentials.login or ""
        if self._is_right(name, credentials.passcode or ""):
            answer(User(name, frozenset(self._groups(name))))
        else:
            answer(None)

    def authorise(self, request: Request, answer: Callable[[Decision], None]) -> None:
        """Check an access right."""
        rights = self._rights(sorted(request.user.groups), request.destination)
        letter = _LETTERS.get(request.action)
        answer(Decision(allowed=letter is None or letter in rights))


def _checker(config: Mapping[str, Any], path: Path) -> Callable[[str, str], bool]:
    """Return the function that checks logins and passcodes."""
    kind = config.get("sec_type", "any")
    if kind == "any":
        return lambda name, passcode: True
    if kind == "test":
        count = int(config.get("id_count", _TEST_USERS))
        return lambda name, passcode: any(
            (name, passcode) == (f"usr{number}", f"pwd{number}") for number in range(count)
        )
    if kind == "file":
        return _file_checker(config, path)
    raise ValueError(f"{path}: sec_type is {kind!r}; there are any, test and file")


def _file_checker(config: Mapping[str, Any], path: Path) -> Callable[[str, str], bool]:
    """Return a function that checks against a file of users, named relative to the module."""
    users = path.parent / str(config.get("filename", ""))
    if not users.is_file():
        raise ValueError(f"{path}: there is no file of users {users}")
    options = {key: config[key] for key in _FILE_KEYS if key in config}
    if "delim" in options:
        options["delim"] = str(options["delim"]).encode()
    database = FilePasswordDB(str(users), **options)  # type: ignore[no-untyped-call]  # Twisted's

    def is_right(name: str, passcode: str) -> bool:
        try:
            _, expected = database.getUser(name.encode())
        except (KeyError, UnauthorizedLogin):
            return False
        return compare_digest(expected, passcode.encode())

    return is_right
