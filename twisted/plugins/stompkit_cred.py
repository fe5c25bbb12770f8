"""Makes the broker's password files known to ``--auth``, of this and other Twisted services."""

from importlib import import_module
from pathlib import Path
from typing import Any

from twisted.cred.credentials import IUsernameHashedPassword, IUsernamePassword
from twisted.cred.strcred import ICheckerFactory
from twisted.plugin import IPlugin
from zope.interface import implementer


@implementer(ICheckerFactory, IPlugin)
class PasswordFile:
    """A kind of password file; its checker is imported when it is used."""

    argStringFormat = "PATH"

    def __init__(
        self, kind: str, checker: str, credential_interfaces: tuple[Any, ...], help_text: str
    ) -> None:
        """Keep the name of the class that checks."""
        self.authType = kind
        self.authHelp = help_text
        self.credentialInterfaces = credential_interfaces
        self._checker = checker

    def generateChecker(self, argstring: str) -> Any:
        """Read the file; OSError or ValueError where it can't be read."""
        if not argstring:
            raise ValueError("it needs the path of a file")
        module = import_module("stompkit.server.login.password_files")
        return getattr(module, self._checker)(Path(argstring))


stompkit = PasswordFile(
    "stompkit",
    "HashedPasswordFile",
    (IUsernamePassword,),
    "A file with lines USER:scrypt$...:GROUP,GROUP, the groups left out at will. It is read again"
    " when it has changed.",
)

ini = PasswordFile(
    "ini",
    "IniPasswordFile",
    (IUsernamePassword, IUsernameHashedPassword),
    "A file with USER = PASSCODE, in clear, in a section [auth], as CoilMQ has it. It is read again"
    " when it has changed.",
)

json = PasswordFile(
    "json",
    "JsonPasswordFile",
    (IUsernamePassword, IUsernameHashedPassword),
    "A file with a JSON object of users and passcodes, in clear: any characters may be in them. It"
    " is read again when it has changed.",
)
