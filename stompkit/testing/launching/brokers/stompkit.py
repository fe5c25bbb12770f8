"""Launch this package's own broker."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stompkit._common.files import reason_of
from stompkit.testing.launching.brokers.launcher import Prepared, inherited_environment
from stompkit.testing.launching.config import LaunchConfig
from stompkit.testing.launching.control import server_path
from stompkit.testing.launching.errors import BrokerError

__all__ = ["Stompkit"]

_PACKAGE = Path(__file__).resolve().parents[3]

#: Default virtual host of the emulated brokers that accept only some names.
_VHOSTS: Final[dict[str, Callable[[], str]]] = {"rabbitmq": lambda: "/", "coilmq": socket.getfqdn}


class Stompkit:
    """``twist stompkit``: it chooses its port, and keeps data only in memory by default.

    ``twist stompkit-test`` if tests control it.
    """

    chooses_port = True
    versions = "1.0,1.1,1.2"
    start_timeout_s = 20.0
    login: str | None = None
    passcode: str | None = None
    features = frozenset({"persistent", "control", "admin", "quirks", "config", "websocket"})

    def vhost(self, config: LaunchConfig) -> str:
        """Return the default: every name is accepted, except by some settings and quirks."""
        if config.config is not None and (hosts := _hosts(Path(config.config))):
            return hosts[0]
        for name in (config.quirks or "").split(","):
            if name in _VHOSTS:
                return _VHOSTS[name]()
        return config.host

    def missing(self) -> str | None:
        """Check for Twisted, without importing it into the process that runs the tests."""
        found = importlib.util.find_spec("twisted")
        # A namespace package has no origin, such as the directory of stompkit's own Twisted
        # plug-in.
        if found is None or found.origin is None:
            return (
                f"the Python package Twisted, on which it runs, was not found by {sys.executable};"
                " get it by: pip install 'Twisted>=24.7'"
            )
        return None

    def prepare(
        self, config: LaunchConfig, directory: Path, take_port: Callable[[], int]
    ) -> Prepared:
        """Make the broker announce its port in a file, and read its user from another."""
        announce = directory / "announce.json"
        announce.unlink(missing_ok=True)
        # In an endpoint description a colon ends an argument.
        interface = config.host.replace(":", "\\:")
        tested = config.control or config.quirks is not None or config.config is not None
        # Request text: the default for a file is JSON.
        command = [sys.executable, "-m", "twisted", "--log-format", "text"]
        command += ["stompkit-test" if tested else "stompkit"]
        command += ["--endpoint", f"tcp:{config.port}:interface={interface}"]
        command += ["--announce", str(announce)]
        if config.websocket:
            command += ["--websocket", f"tcp:{config.websocket_port}:interface={interface}"]
            command += ["--allow-origin", "*"]
        if config.login is not None:
            if config.passcode is None:
                raise BrokerError(
                    f"stompkit requires a passcode: give {config.login!r} one by"
                    " --mq-passcode or LaunchConfig(passcode=...)"
                )
            # Not Twisted's file of users, in which a colon ends a passcode and blanks are lost.
            users = directory / "users.json"
            users.touch(0o600)
            users.write_text(json.dumps({config.login: config.passcode}), encoding="utf-8")
            # Tests may send many wrong passcodes.
            command += ["--auth", f"json:{users}", "--no-throttle"]
        if config.persistent:
            command += ["--data", str(directory / "data")]
        if config.admin:
            command += ["--admin", f"tcp:0:interface={interface}"]
        control = directory / "control" if config.control else None
        if control is not None:
            command += ["--control", server_path(control)]
        if config.quirks is not None:
            command += ["--quirk", config.quirks]
        if config.config is not None:
            # It runs in a directory of its own.
            command += ["--settings-like", os.path.abspath(config.config)]
        environment = inherited_environment()
        environment["PYTHONPATH"] = _python_path()
        environment["PYTHONUNBUFFERED"] = "1"
        return Prepared([*command, *config.arguments], environment, announce, control)


def _hosts(path: Path) -> list[str]:
    """Return the virtual hosts of a configuration file; the broker itself reports its mistakes."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BrokerError(
            f"stompkit cannot use the settings of {path}: {reason_of(error)}. Correct"
            " --mq-config or LaunchConfig(config=...)"
        ) from None
    except ValueError:
        return []
    broker = tables.get("broker")
    hosts = broker.get("hosts") if isinstance(broker, dict) else None
    return [each for each in hosts if isinstance(each, str)] if isinstance(hosts, list) else []


def _python_path() -> str:
    """Return a path that imports the same package as the tests, also from a checkout."""
    paths = [os.environ.get("PYTHONPATH", "")]
    root = _PACKAGE.parent
    if root.name not in ("site-packages", "dist-packages"):
        paths.insert(0, str(root))
    return os.pathsep.join(path for path in paths if path)
