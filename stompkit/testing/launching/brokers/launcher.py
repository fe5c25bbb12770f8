"""The interface of a launcher."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Protocol

from stompkit.testing.launching.config import LaunchConfig
from stompkit.testing.launching.errors import BrokerError

__all__ = [
    "Access",
    "Launcher",
    "Prepared",
    "check_blanks",
    "check_colons",
    "check_controls",
    "check_escapes",
    "inherited_environment",
    "xml_attribute",
]


@dataclass(frozen=True)
class Access:
    """Headers of a CONNECT that the broker accepts once it is ready."""

    vhost: str
    """The value of ``host``."""
    login: str | None
    """The value of ``login``; ``None`` leaves it out."""
    passcode: str | None
    """The value of ``passcode``; ``None`` leaves it out."""


@dataclass(frozen=True)
class Prepared:
    """A broker that is ready to run."""

    command: list[str]
    """The command; it stays in the foreground."""
    environment: Mapping[str, str]
    """All environment variables of the command."""
    announce: Path | None = None
    """The file to which the broker writes its port; ``None``: it listens on the given port."""
    control: Path | None = None
    """The Unix socket by which tests control the broker; ``None``: there is none."""
    working_directory: Path | None = None
    """The working directory of the command; ``None``: the directory of the broker's files."""
    accesses: tuple[Access, ...] = ()
    """The users and virtual hosts that the files configure besides those of the LaunchConfig."""
    started_text: str = ""
    """Text that the broker logs when its start is complete; empty: it then answers CONNECT."""
    is_emulated: bool = False
    """True if another broker emulates the requested one."""
    version: str = ""
    """The version of the server; empty if it is not known before it runs."""
    note: str = ""
    """A note on the broker, written at the start of its log."""


def check_escapes(config: LaunchConfig, name: str, pattern: str) -> None:
    """Raise BrokerError for a login or passcode in which the broker *name* would decode escapes.

    CONNECT has no escapes (1.2, "Value Encoding"), but some brokers decode them anyway. *pattern*
    matches the text that they decode.
    """
    _refuse(config, pattern, f"{name} decodes escapes in CONNECT", "has {}")


def check_blanks(config: LaunchConfig, name: str, pattern: str = r"\A[\0- ]|[\0- ]\Z") -> None:
    """Raise BrokerError for a login or passcode from which the broker *name* would remove blanks.

    *pattern* matches the blanks; the default matches those that Java's ``trim`` removes.
    """
    _refuse(config, pattern, f"{name} removes blanks at the ends of a header", "has some")


def check_colons(config: LaunchConfig, name: str) -> None:
    """Raise BrokerError for a login or passcode with a colon, which *name* cannot read."""
    _refuse(config, ":", f"{name} cannot read a header with a colon", "has one")


def check_controls(config: LaunchConfig, name: str) -> None:
    """Raise BrokerError for a login or passcode that the XML file of *name* cannot contain."""
    problem = f"{name} reads the user from XML, which has no control characters"
    _refuse(config, r"[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", problem, "has one")


def xml_attribute(text: str) -> str:
    """Return the value of an XML attribute in quotes; the standard module imports slowly.

    Parsers replace literal tabs and line ends in attributes by blanks, but not references to them.
    """
    return '"' + escape(text).translate({number: f"&#{number};" for number in b"\t\n\r"}) + '"'


def _refuse(config: LaunchConfig, pattern: str, problem: str, has: str) -> None:
    """Raise BrokerError for a login or passcode that *pattern* is found in."""
    for what, text in (("login", config.login), ("passcode", config.passcode)):
        found = re.search(pattern, text or "")
        if found:
            raise BrokerError(
                f"{problem}, and this {what} {has.format(found[0])}: choose another one by"
                f" --mq-{what} or LaunchConfig({what}=...)"
            )


class Launcher(Protocol):
    """One kind of broker."""

    chooses_port: bool
    """True if the broker, given port 0, reports the port that it chose."""
    versions: str
    """The ``accept-version`` that CONNECT must offer to be answered."""
    start_timeout_s: float
    """Default timeout in seconds until CONNECT is answered."""
    login: str | None
    """The user of a broker that was launched without a login; ``None``: any or none."""
    passcode: str | None
    """The password of that user."""
    features: frozenset[str]
    """The supported ones of ``persistent``, ``control``, ``admin``, ``quirks``, ``websocket``."""

    def vhost(self, config: LaunchConfig) -> str:
        """Return the default virtual host of a broker that is launched with this configuration."""
        ...

    def missing(self) -> str | None:
        """Return which server software is missing and how to install it, or ``None``."""
        ...

    def prepare(
        self, config: LaunchConfig, directory: Path, take_port: Callable[[], int]
    ) -> Prepared:
        """Write the broker's files into ``directory`` and return the command that runs it.

        The same broker may have used the directory before.  ``config`` has no ``None`` except for a
        login and passcode that are not used, and its port is the one to use; ``take_port`` returns
        further ports, for protocols other than STOMP.  Raises BrokerError for settings that the
        broker does not support.
        """
        ...


def inherited_environment(*dropped_prefixes: str) -> dict[str, str]:
    """Return the environment of this process, without variables that would affect the broker."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(dropped_prefixes)
    }
