"""The configuration of a broker to be launched."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["LaunchConfig"]


@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """Configuration of a broker to be launched.

    ``None`` always means the default of the broker; RunningBroker has the value that was used.
    """

    name: str = "stompkit"
    """The broker: ``stompkit``, ``coilmq``, ``activemq``, ``artemis``, ``rabbitmq`` or ``morbidq``,
    or any other by its command.

    ActiveMQ, Artemis and RabbitMQ can have a version, as in ``rabbitmq:4`` or ``rabbitmq:3.10``.
    It selects the newest such release that is installed, or that ``make servers`` has fetched.
    The default is the installed release, else the newest that was fetched.

    A command begins with ``command:``, followed by words in shell syntax. ``{port}``, ``{host}``,
    ``{directory}``, ``{login}`` and ``{passcode}`` are replaced by the other settings, as in
    ``command:/opt/mq --listen {host}:{port}``. The command stays in the foreground, and runs in
    the working directory of the tests. MorbidQ is the real one if it is found for a Python 2.7,
    else stompkit's broker with MorbidQ's quirks; see ``RunningBroker.is_emulated``.
    """
    host: str = "127.0.0.1"
    """The address to listen on, as an IPv4 or IPv6 literal.

    ``::1`` replaces ``127.0.0.1`` if this machine has no IPv4.
    """
    port: int = 0
    """The TCP port to listen on; 0 selects a free one."""
    login: str | None = None
    """The user that may log in; ``""`` means no login: CONNECT is sent without one.

    By default a broker accepts any client, except RabbitMQ, whose user is ``guest``. With a login
    the broker accepts only this user (RabbitMQ: this user and ``guest``).
    """
    passcode: str | None = None
    """The password of ``login``."""
    vhost: str | None = None
    """The virtual host: the value of CONNECT's ``host`` header."""
    start_timeout_s: float | None = None
    """Time in seconds that the broker may take to answer CONNECT."""
    stop_timeout_s: float = 10.0
    """Time in seconds that the broker may take to shut down before it is killed."""
    arguments: tuple[str, ...] = ()
    """Additional arguments for the broker's command (ActiveMQ: for the Java virtual machine)."""
    directory: str | os.PathLike[str] | None = None
    """The directory for configuration, data and log.

    A directory that is given here is created if necessary, and kept; a broker that is launched in
    it again recovers its data.  By default a temporary one, removed when the broker has stopped.
    One broker at a time can use a directory.
    """
    persistent: bool | None = False
    """True if messages with the header ``persistent:true`` survive ``restart()``.

    ``None`` means true if the broker supports persistence.

    ActiveMQ, Artemis and RabbitMQ always keep such messages. CoilMQ and stompkit treat all messages
    as persistent. For a custom command it depends on that command.
    """
    control: bool = False
    """True if tests can control the broker, by ``reset()`` and ``clock``.

    stompkit only.
    """
    admin: bool = False
    """True if the broker serves its admin HTTP at ``RunningBroker.admin_url``; stompkit only."""
    quirks: str | None = None
    """Deviations from STOMP that the broker should have; stompkit only.

    A comma-separated list of rules, and of brokers that each stand for all of their rules; a minus
    sign removes a rule: ``"rabbitmq,-receipt-order"``.
    """
    config: str | os.PathLike[str] | None = None
    """A configuration file of the broker whose settings apply to tests, too; stompkit only.

    The listeners, the store, the log and the lease of the file are ignored. With a ``login`` its
    rights and groups apply; without one, clients may do everything.
    """
    websocket: bool = False
    """True if STOMP over WebSocket is also served, at ``RunningBroker.ws_url``; stompkit only.

    It requires ``pip install 'stompkit[websocket]'``. Pages of every origin may connect. Frames
    over WebSocket are not in ``RunningBroker.frames``.
    """
    websocket_port: int = 0
    """The TCP port for WebSockets; 0 selects a free one."""
    frames: bool = False
    """True if a proxy in front of the broker records all frames; ``port`` is then the proxy's."""
    queue_template: str = "/queue/{}"
    """The destination of a queue; ``{}`` is replaced by its name; see ``RunningBroker.queue()``."""
    topic_template: str = "/topic/{}"
    """The destination of a topic, likewise."""

    @property
    def secrets(self) -> list[str]:
        """Texts that no record of frames may show."""
        # A passcode that equals the login, as RabbitMQ's guest has, is not a secret.
        return [self.passcode] if self.passcode and self.passcode != self.login else []
