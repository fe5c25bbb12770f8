"""Launch RabbitMQ with its STOMP plug-in and no other public listener."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from stompkit.testing.launching.brokers.launcher import (
    Access,
    Prepared,
    check_escapes,
    inherited_environment,
)
from stompkit.testing.launching.brokers.releases import Release, choose, explain_missing
from stompkit.testing.launching.config import LaunchConfig
from stompkit.testing.launching.errors import BrokerError
from stompkit.testing.launching.fetched import Fetched, version_key
from stompkit.testing.launching.ports import IPV4_LOOPBACK, loopback

__all__ = ["RabbitMQ"]

#: The server itself. The program of the same name on PATH is a wrapper that must run as root or as
#: the system service's user.
_SERVERS: Final = (Path("/usr/lib/rabbitmq/bin/rabbitmq-server"),)
_GUEST: Final = "guest"
_NAME: Final = "rabbitmq"
#: Name of the current release in ``make servers``.
_FETCH: Final = "rabbitmq-4"
#: The part of the program's resolved path that contains the version.
_VERSION: Final = re.compile(r"rabbitmq_server-(\d[\d.]*)")
#: Older versions quote the name of a directory incompletely for a shell.
_QUOTES_SINCE: Final = (4,)

# By default the first node on the machine starts epmd, the directory of Erlang nodes, as a daemon
# that outlives it. Here epmd is in the broker's process group.
_SCRIPT: Final = 'epmd -port "$ERL_EPMD_PORT" -address "$ERL_EPMD_ADDRESS" & exec "$0" "$@"'


class RabbitMQ:
    """RabbitMQ as a separate node with its own epmd, run by the user of the tests."""

    chooses_port = False
    versions = "1.0,1.1,1.2"
    start_timeout_s = 120.0
    login: str | None = _GUEST
    passcode: str | None = _GUEST
    features = frozenset({"persistent"})

    def __init__(self, version: str = "") -> None:
        """Launch this version; by default the installed one, else the newest that was fetched."""
        self._version = version

    def vhost(self, config: LaunchConfig) -> str:
        """Return RabbitMQ's default virtual host."""
        return "/"

    def missing(self) -> str | None:
        """Check for the server and Erlang, on the system and among the fetched releases."""
        release = self._release()
        if release is None and self._version:
            return explain_missing(_NAME, self._version, _installed(), _FETCH)
        if release is None:
            wanted = "; ".join(_lacking())
            return (
                f"not found: {wanted}. Install Debian's package rabbitmq-server: "
                "apt-get install rabbitmq-server (its system service is not needed)"
            )
        return None if release.fetched is None else Fetched.obstacle()

    def prepare(
        self, config: LaunchConfig, directory: Path, take_port: Callable[[], int]
    ) -> Prepared:
        """Write configuration, plug-ins, users and virtual hosts."""
        release = self._release()
        version = "" if release is None else release.version
        if loopback() != IPV4_LOOPBACK:
            raise BrokerError(
                "RabbitMQ cannot run without IPv4: epmd, which it needs, listens on"
                f" {IPV4_LOOPBACK}"
            )
        _check_directory(directory, version)
        definitions = directory / "definitions.json"
        definitions.write_text(json.dumps(_definitions(config), indent=1), encoding="utf-8")
        definitions.chmod(0o600)
        (directory / "rabbitmq.conf").write_text(
            _settings(config, definitions.name), encoding="utf-8"
        )
        (directory / "enabled_plugins").write_text("[rabbitmq_stomp].\n", encoding="utf-8")
        server = _server() or _SERVERS[0]
        command = ["/bin/sh", "-c", _SCRIPT, str(server), *config.arguments]
        if release is not None and release.fetched is not None:
            command = release.fetched.within(command)
        environment = inherited_environment("RABBITMQ_", "ERL_") | _variables(directory)
        environment["ERL_EPMD_PORT"] = str(take_port())
        environment["RABBITMQ_DIST_PORT"] = str(take_port())
        return Prepared(
            command,
            environment,
            accesses=tuple(_accesses(config)),
            # It answers CONNECT earlier, but sessions may then hang until its start is complete.
            started_text="Server startup complete",
            version=version,
        )

    def _release(self) -> Release | None:
        """Return the release to launch, if it is available."""
        return choose(_NAME, self._version, _installed())


def _installed() -> str | None:
    """Return the version on the system; ``None`` if a part of it is missing."""
    if _lacking():
        return None
    found = _VERSION.search(str(_SERVERS[0].resolve()))
    return found.group(1) if found else ""


def _lacking() -> list[str]:
    """Return the parts that the system lacks to run the server."""
    programs = [name for name in ("erl", "epmd") if shutil.which(name) is None]
    lacking = [f"the program {name!r} on PATH" for name in programs]
    if _server() is None:
        lacking.append(f"the program {_SERVERS[0]}")
    return lacking


def _server() -> Path | None:
    """Return the path of the server's program."""
    return next((path for path in _SERVERS if os.access(path, os.X_OK)), None)


def _variables(directory: Path) -> dict[str, str]:
    """Return the environment variables that keep all of the node's files in its directory."""
    return {
        # The node stores its cookie, which authenticates nodes to each other, in this directory.
        "HOME": str(directory),
        "RABBITMQ_NODENAME": "stompkit@localhost",
        "RABBITMQ_BASE": str(directory),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_GENERATED_CONFIG_DIR": str(directory / "generated"),
        "RABBITMQ_SCHEMA_DIR": str(directory / "schema"),
        "RABBITMQ_PLUGINS_EXPAND_DIR": str(directory / "plugins-expanded"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "advanced"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
        "RABBITMQ_PID_FILE": str(directory / "rabbitmq.pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "ERL_EPMD_ADDRESS": IPV4_LOOPBACK,
        "ERL_CRASH_DUMP": str(directory / "erl_crash.dump"),
    }


def _check_directory(directory: Path, version: str) -> None:
    """Raise BrokerError for a directory in which the server would hang."""
    unquoted = "`" if version_key(version) >= _QUOTES_SINCE else "'\""
    if any(character in str(directory) for character in unquoted):
        raise BrokerError(
            f"RabbitMQ {version} cannot measure the disk of a directory with"
            f" {' or '.join(unquoted)} in its name: {directory}; name another one by TMPDIR or"
            " LaunchConfig(directory=...)"
        )


def _settings(config: LaunchConfig, definitions: str) -> str:
    """Return the configuration file."""
    return f"""\
listeners.tcp = none
stomp.listeners.tcp.1 = {config.host}:{config.port}
loopback_users.guest = true
load_definitions = {definitions}
disk_free_limit.absolute = 50MB
"""


def _accesses(config: LaunchConfig) -> Iterator[Access]:
    """Yield all users with all virtual hosts: RabbitMQ reads them while it already listens."""
    is_loopback = ip_address(config.host).is_loopback
    for vhost in _vhosts(config):
        for login, passcode in _users(config).items():
            # From other addresses the guest may not log in.
            if is_loopback or login != _GUEST:
                yield Access(vhost, login, passcode)


def _definitions(config: LaunchConfig) -> dict[str, Any]:
    """Return the users, the virtual hosts and the permissions: all users may do everything."""
    users = _users(config)
    vhosts = _vhosts(config)
    return {
        "users": [_user(name, password) for name, password in users.items()],
        "vhosts": [{"name": vhost} for vhost in vhosts],
        "permissions": [
            {"user": user, "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}
            for user in users
            for vhost in vhosts
        ],
    }


def _vhosts(config: LaunchConfig) -> list[str]:
    return sorted({"/", config.vhost or "/"})


def _users(config: LaunchConfig) -> dict[str, str]:
    """Return the passwords of all users; raises BrokerError for a login that cannot work."""
    # For an unknown virtual host it closes the connection without an ERROR.
    check_escapes(config, "RabbitMQ", r"\\.?")
    users = {_GUEST: _GUEST}
    if config.login is not None:
        if not config.passcode:
            raise BrokerError(
                f"RabbitMQ requires a passcode: give {config.login!r} one by"
                " --mq-passcode or LaunchConfig(passcode=...)"
            )
        users[config.login] = config.passcode
    return users


def _user(name: str, password: str) -> dict[str, Any]:
    """Return one user, with the password hashed as RabbitMQ stores it."""
    salt = os.urandom(4)
    digest = hashlib.sha256(salt + password.encode()).digest()
    return {
        "name": name,
        "password_hash": base64.b64encode(salt + digest).decode("ascii"),
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": "administrator",
    }
