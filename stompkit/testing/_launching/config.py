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
    """The broker: ``stompkit``, ``coilmq``, ``activemq``, ``artemis``, ``rabbitmq`` or ``morbidq``,
    or any other by its command.

    ActiveMQ, Artemis and RabbitMQ can have a version, as in ``rabbitmq:4`` or ``rabbitmq:3.10``:
    the newest such release that is installed, or that ``make servers`` has fetched. Without one it
    is the installed release, else the newest that was fetched.

    Such a command begins with ``command:`` and goes on with the words of a shell, in which
    ``{port}``, ``{host}``, ``{directory}``, ``{login}`` and ``{passcode}`` stand for the other
    settings, as in ``command:/opt/mq --listen {host}:{port}``. It stays in the foreground, and is
    run where the tests are. MorbidQ is the real one where it is found, for a Python 2.7, else
    stompkit's broker with MorbidQ's quirks; ``RunningBroker.is_emulated`` tells.
    """
    host: str = "127.0.0.1"
    """The address to listen on, as an IPv4 or IPv6 literal.

    ``::1`` takes the place of ``127.0.0.1`` where this machine has no IPv4.
    """
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
    persistent: bool | None = False
    """Whether persistent messages survive ``restart()``: those with the header ``persistent:true``.

    ``None``: where the broker can keep any.

    Those of ActiveMQ, Artemis and RabbitMQ do in any case, and CoilMQ and stompkit take all
    messages for persistent. With a command of one's own it is up to that.
    """
    control: bool = False
    """Whether tests have a say in the broker: ``reset()`` of all that it has, and ``clock``.

    stompkit only.
    """
    admin: bool = False
    """Whether the broker serves its admin's HTTP, at ``RunningBroker.admin_url``; stompkit only."""
    quirks: str | None = None
    """The deviations from STOMP that the broker shall have; stompkit only.

    A list, with commas, of rules, and of brokers that each stand for all of their rules; a minus
    sign takes a rule away: ``"rabbitmq,-receipt-order"``.
    """
    websocket: bool = False
    """Whether to listen for STOMP over WebSocket, too, at ``RunningBroker.ws_url``; stompkit only.

    It takes ``pip install 'stompkit[websocket]'``. Pages of every origin may connect; nothing of
    it is in ``RunningBroker.frames``.
    """
    websocket_port: int = 0
    """The TCP port for that; 0 takes a free one."""
    frames: bool = False
    """Whether to record all frames, by a proxy in front of the broker; ``port`` is then its."""
    queue_template: str = "/queue/{}"
    """The destination of a queue, ``{}`` standing for its name; see ``RunningBroker.queue()``."""
    topic_template: str = "/topic/{}"
    """The destination of a topic, likewise."""

    @property
    def secrets(self) -> list[str]:
        """What no record of frames may show."""
        # A passcode that is the login, as RabbitMQ's guest has, is none.
        return [self.passcode] if self.passcode and self.passcode != self.login else []
