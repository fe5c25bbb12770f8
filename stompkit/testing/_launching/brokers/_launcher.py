"""What has to be known of a broker to launch it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stompkit.testing._launching.config import LaunchConfig
from stompkit.testing._launching.errors import BrokerError

__all__ = ["Launcher", "Prepared", "check_escapes", "inherited_environment"]


@dataclass(frozen=True)
class Prepared:
    """A broker that is ready to be run."""

    command: list[str]
    """The command; it stays in the foreground."""
    environment: Mapping[str, str]
    """The environment variables of the command, all of them."""
    announce: Path | None = None
    """Where the broker writes which port it chose; ``None``: it listens where it was told."""
    control: Path | None = None
    """The Unix socket at which tests have a say in the broker; ``None``: there is none."""
    working_directory: Path | None = None
    """Where the command is run; ``None``: in the directory of the broker's files."""
    is_emulated: bool = False
    """Whether another broker plays the one that was asked for."""
    version: str = ""
    """The version of the server; empty where it is not known before it runs."""
    note: str = ""
    """What to say of the broker at the beginning of its log."""


def check_escapes(config: LaunchConfig, name: str, pattern: str) -> None:
    """Raise BrokerError for a login or passcode in which the broker *name* would see escapes.

    CONNECT has none (1.2, "Value Encoding"), but some brokers decode it all the same. *pattern* is
    what they decode.
    """
    for what, text in (("login", config.login), ("passcode", config.passcode)):
        found = re.search(pattern, text or "")
        if found:
            raise BrokerError(
                f"{name} decodes escapes in CONNECT, and this {what} has {found[0]}: it would be"
                " taken for another one"
            )


class Launcher(Protocol):
    """One kind of broker."""

    chooses_port: bool
    """Whether the broker, told to take port 0, tells which one it got."""
    versions: str
    """What CONNECT must offer to be answered, as the value of ``accept-version``."""
    start_timeout_s: float
    """How long to wait by default until CONNECT is answered, in seconds."""
    login: str | None
    """The user of a broker that was launched without one being named; ``None``: any or none."""
    passcode: str | None
    """That user's password."""
    features: frozenset[str]
    """Which of ``persistent``, ``control``, ``admin``, ``quirks``, ``websocket`` it has."""

    def vhost(self, config: LaunchConfig) -> str:
        """The virtual host of a broker that is launched like this, if none is named."""
        ...

    def missing(self) -> str | None:
        """Say what of the server software is not installed and how to get it, else ``None``."""
        ...

    def prepare(
        self, config: LaunchConfig, directory: Path, take_port: Callable[[], int]
    ) -> Prepared:
        """Write the broker's files into ``directory`` and say how to run it.

        The directory may have been used for the same broker before.  ``config`` has no ``None``
        in it but for a login and passcode that are not wanted, and its port is the one to use;
        ``take_port`` gives more, for what is not STOMP.  Raises BrokerError for settings that
        the broker does not have.
        """
        ...


def inherited_environment(*dropped_prefixes: str) -> dict[str, str]:
    """The environment of this process, less the variables that would steer the broker elsewhere."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(dropped_prefixes)
    }
