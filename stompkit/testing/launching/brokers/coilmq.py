"""Launch CoilMQ, a broker in Python with a thread for each connection."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stompkit.testing.launching.brokers.launcher import (
    Prepared,
    check_blanks,
    check_colons,
    inherited_environment,
)
from stompkit.testing.launching.config import LaunchConfig
from stompkit.testing.launching.errors import BrokerError

__all__ = ["CoilMQ"]


#: Writes the index of messages with each message. By default every hundredth message does; after
#: SIGTERM or SIGKILL the others are lost.
_PERSISTENT: Final = """\
qstore.factory = coilmq.store.dbm:make_dbm
qstore.dbm.data_dir = {data}
qstore.dbm.checkpoint_operations = 0"""
#: Only the last of Python's databases writes to disk immediately on all systems. Debian's ndbm
#: writes when the database is closed, which does not happen at such an end.
_START: Final = """\
import sys
for name in ("gnu", "ndbm", "sqlite3"):
    sys.modules["dbm." + name] = None
from coilmq.start import main
main()
"""

#: The module with the user.
_USERS: Final = "stompkit_users"
_MODULE: Final = """\
from coilmq.auth.simple import SimpleAuthenticator
def make():
    return SimpleAuthenticator({users!r})
"""


class CoilMQ:
    """CoilMQ with its messages in memory, or in its simplest store."""

    chooses_port = False
    # If 1.2 is offered, it requires a host header with the machine's full name.
    versions = "1.0,1.1"
    start_timeout_s = 20.0
    login: str | None = None
    passcode: str | None = None
    features = frozenset({"persistent"})

    def vhost(self, config: LaunchConfig) -> str:
        """Return the only name that it accepts in 1.2; in 1.0 and 1.1 it is not checked."""
        return socket.getfqdn()

    def missing(self) -> str | None:
        """Check for the package, and then for a program from another environment."""
        if self._command() is None:
            return (
                f"neither a Python package 'coilmq' for {sys.executable} nor a program 'coilmq' "
                "on PATH was found; get it by: pip install 'coilmq>=1.1'"
            )
        return None

    def prepare(
        self, config: LaunchConfig, directory: Path, take_port: Callable[[], int]
    ) -> Prepared:
        """Write the configuration file, and the file of users if necessary."""
        if ":" in config.host:
            raise BrokerError(
                f"CoilMQ cannot listen on {config.host}, since it knows IPv4 only: leave out"
                " LaunchConfig(host=...), or use a machine that has IPv4"
            )
        lines = ["[coilmq]"]
        environment = inherited_environment() | {"PYTHONUNBUFFERED": "1"}
        if config.login is not None:
            check_blanks(config, "CoilMQ", r"\s\Z")
            check_colons(config, "CoilMQ")
            _write_users(directory / f"{_USERS}.py", config.login, config.passcode or "")
            lines += [f"auth.factory = {_USERS}:make"]
            paths = [str(directory), environment.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        command = self._command() or ["coilmq"]
        if config.persistent:
            if importlib.util.find_spec("coilmq") is None:
                raise BrokerError(f"CoilMQ keeps messages only as a package of {sys.executable}")
            data = directory / "data"
            data.mkdir(exist_ok=True)
            # In a setting that begins with it, a percent sign refers to another setting.
            lines += [_PERSISTENT.format(data=str(data).replace("%", "%%"))]
            command = [sys.executable, "-c", _START]
        settings = directory / "coilmq.ini"
        settings.write_text("\n".join([*lines, ""]), encoding="utf-8")
        command += ["-c", str(settings)]
        command += ["-b", config.host, "-p", str(config.port), *config.arguments]
        return Prepared(command, environment)

    @staticmethod
    def _command() -> list[str] | None:
        """Return the start of its command line, if it is installed."""
        if importlib.util.find_spec("coilmq") is not None:
            return [sys.executable, "-m", "coilmq.start"]
        program = shutil.which("coilmq")
        return None if program is None else [program]


def _write_users(path: Path, login: str, passcode: str) -> None:
    """Write a module with the user: CoilMQ's own file of users does not support all names."""
    path.touch(0o600)
    path.write_text(_MODULE.format(users={login: passcode}), encoding="utf-8")
