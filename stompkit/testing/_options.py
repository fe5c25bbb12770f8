"""The plug-in's options: command line before configuration file before environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final, Self

import pytest

from stompkit.testing._address import parse_address
from stompkit.testing._brokers import LAUNCHERS
from stompkit.testing._brokers._launcher import url_host

__all__ = ["OPTIONS", "Settings"]

_DEFAULT_BROKER: Final = "stompkit"
_MISSING_CHOICES: Final = ("skip", "fail")
_KNOWN: Final = ", ".join(LAUNCHERS)


@dataclass(frozen=True)
class Option:
    """One option, by its three names."""

    name: str
    """Its name in the configuration file."""
    metavar: str
    """What stands for its value in the help."""
    help: str
    """What it does."""

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return "STOMPKIT_" + self.name.upper()

    def read(self, config: pytest.Config) -> tuple[str | None, str]:
        """The value, ``None`` if it is nowhere, and where it was found.

        An empty value on the command line counts: it takes back what the others say.
        """
        value: str | None = config.getoption(self.name)
        if value is not None:
            return value or None, self.flag
        value = config.getini(self.name)
        if value:
            return value, f"{self.name} in {config.inipath or 'the configuration'}"
        return os.environ.get(self.variable) or None, f"environment variable {self.variable}"


_MQ: Final = Option(
    "mq", "HOST:PORT", "test with the broker that runs at this address instead of starting one"
)
_BROKER: Final = Option(
    "mq_broker", "NAME", f"start this broker: {_KNOWN} (default: {_DEFAULT_BROKER})"
)
_LOGIN: Final = Option("mq_login", "USER", "log in to the broker as this user")
_PASSCODE: Final = Option("mq_passcode", "PASSWORD", "the password of that user")
_VHOST: Final = Option("mq_vhost", "NAME", "the broker's virtual host, for CONNECT's host header")
_MISSING: Final = Option(
    "mq_missing",
    "skip|fail",
    "what becomes of tests whose broker is not installed (default: skip)",
)
OPTIONS: Final = (_MQ, _BROKER, _LOGIN, _PASSCODE, _VHOST, _MISSING)


@dataclass(frozen=True)
class Settings:
    """What the options come to."""

    address: tuple[str, int] | None
    """Host and TCP port of the broker that is already running, if one was given."""
    broker_name: str | None
    """The broker that was named, if one was."""
    login: str | None
    """The user to log in as, if one was named."""
    passcode: str | None
    """The password that was named."""
    vhost: str | None
    """The virtual host that was named."""
    missing: str
    """What a missing server does to a test: ``skip`` or ``fail``."""

    @classmethod
    def read(cls, config: pytest.Config) -> Self:
        """Read the options; raises pytest.UsageError for one that makes no sense."""
        text, where = _MQ.read(config)
        address = None if text is None else _address(text, where)
        name, where = _BROKER.read(config)
        # A broker that runs already needs no launcher, only a name for messages and reports.
        if name is not None and name not in LAUNCHERS and address is None:
            raise pytest.UsageError(f"{where}: no broker is called {name!r}; known: {_KNOWN}")
        missing, where = _MISSING.read(config)
        if missing is not None and missing not in _MISSING_CHOICES:
            raise pytest.UsageError(f"{where}: expected skip or fail, not {missing!r}")
        return cls(
            address=address,
            broker_name=name,
            login=_LOGIN.read(config)[0],
            passcode=_PASSCODE.read(config)[0],
            vhost=_VHOST.read(config)[0],
            missing=missing or _MISSING_CHOICES[0],
        )

    @property
    def broker(self) -> str:
        """The broker to launch."""
        return self.broker_name or _DEFAULT_BROKER

    def credentials(self) -> dict[str, str]:
        """The fields of LaunchConfig that the options set."""
        fields = {"login": self.login, "passcode": self.passcode, "vhost": self.vhost}
        return {name: value for name, value in fields.items() if value is not None}

    def header(self) -> str | None:
        """A line for the head of pytest's output; ``None`` when no option was given."""
        if self.address is not None:
            host, port = self.address
            name = f"{self.broker_name} " if self.broker_name else ""
            return f"STOMP broker: {name}at {url_host(host)}:{port} (given)"
        if self.broker_name is not None:
            return f"STOMP broker: {self.broker_name} (launched when a test wants it)"
        return None


def _address(text: str, where: str) -> tuple[str, int]:
    try:
        return parse_address(text.strip())
    except ValueError:
        raise pytest.UsageError(
            f"{where}: expected HOST:PORT, as in localhost:61613 or [::1]:61613, not {text!r}"
        ) from None
