"""The settings of one broker that is to be launched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["LaunchConfig"]


@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """Which broker to launch, and how.

    ``None`` always means: what suits the broker; RunningBroker tells what was taken.
    """

    name: str = "stompkit"
    """The broker: ``stompkit``, ``coilmq``, ``activemq`` or ``rabbitmq``."""
    host: str = "127.0.0.1"
    """The address to listen on, as an IPv4 or IPv6 literal."""
    port: int = 0
    """The TCP port to listen on; 0 takes a free one."""
    login: str | None = None
    """The user that may log in; ``""`` stands for nobody: CONNECT goes without a login.

    By default a broker takes everybody, except RabbitMQ, whose user is ``guest``; with a login
    the broker takes this user only (RabbitMQ: this user and ``guest``).
    """
    passcode: str | None = None
    """The password of ``login``."""
    vhost: str | None = None
    """The virtual host: what clients put into CONNECT's ``host`` header."""
    start_timeout_s: float | None = None
    """How long the broker may take until it answers CONNECT, in seconds."""
    stop_timeout_s: float = 10.0
    """How long the broker may take to shut down before it is killed, in seconds."""
    arguments: tuple[str, ...] = ()
    """More arguments for the broker's command (ActiveMQ: for the Java virtual machine)."""
    directory: Path | None = None
    """Where configuration, data and log go.

    A directory that is named here is made if need be, and kept; a broker that is launched in it
    again finds its data.  By default a temporary one, removed when the broker has stopped.
    """
