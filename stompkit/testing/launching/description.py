"""The description of a broker: how clients reach it, and names of destinations."""

from __future__ import annotations

import os
from itertools import count
from typing import TYPE_CHECKING, Final

from stompkit.testing.launching.address import format_address
from stompkit.testing.launching.brokers import kind_of
from stompkit.testing.launching.config import LaunchConfig
from stompkit.testing.launching.errors import BrokerError
from stompkit.testing.launching.installation import Installation

if TYPE_CHECKING:
    from pathlib import Path

    from stompkit.testing.frames.log import FrameLog
    from stompkit.testing.proxy import Proxy

__all__ = ["BrokerDescription"]

_FRAMES_REMEDY: Final = (
    "ask for a broker with LaunchConfig(frames=True), or given(..., frames=True)"
)


class BrokerDescription:
    """A broker that was launched or given: its address, its state, and names of destinations."""

    name: str
    """The broker's name, without a version."""
    host: str
    """The address that clients connect to."""
    port: int
    """The TCP port that clients connect to."""
    server_address: tuple[str, int]
    """The address that the broker itself listens on: different if its frames are recorded."""
    login: str | None
    """The user to log in as; ``None``: CONNECT needs no login."""
    passcode: str | None
    """The password of that user."""
    vhost: str
    """The value for CONNECT's ``host`` header."""
    queue_template: str
    """The destination of a queue; ``{}`` is replaced by its name."""
    topic_template: str
    """The destination of a topic, likewise."""
    config: LaunchConfig | None
    """The configuration it was launched with; ``None`` for a given broker."""
    directory: Path | None
    """The directory of its configuration, data and log; ``None`` for a given broker."""

    def __init__(
        self,
        config: LaunchConfig,
        port: int,
        *,
        installation: Installation | None = None,
        tap: Proxy | None = None,
    ) -> None:
        """Describe a broker that listens on ``port``."""
        self.name = kind_of(config.name)
        self.server_address = config.host, port
        self.host, self.port = self.server_address if tap is None else (tap.host, tap.port)
        self.login = config.login
        self.passcode = config.passcode
        self.vhost = config.host if config.vhost is None else config.vhost
        self.queue_template = config.queue_template
        self.topic_template = config.topic_template
        self.config = None if installation is None else config
        self.directory = None if installation is None else installation.directory
        self._installation = installation
        self._frames = None if tap is None else tap.frames
        #: The remedy in errors about frames that are not recorded.
        self.frames_remedy = _FRAMES_REMEDY
        self._is_stopped = False
        self._token = os.urandom(4).hex()
        self._numbers = count(1)
        self.new_names()

    def __repr__(self) -> str:
        """Return the name and the address."""
        return f"<RunningBroker {self.name} {self.url}>"

    @property
    def url(self) -> str:
        """The address as ``stomp://host:port``."""
        return f"stomp://{format_address(self.host, self.port)}"

    @property
    def admin_url(self) -> str:
        """URL of the admin HTTP, as ``http://host:port``; it changes with a restart.

        stompkit only, launched with ``LaunchConfig(admin=True)``.
        """
        announced = {} if self._installation is None else self._installation.announcement
        if not announced.get("admin"):
            raise BrokerError(
                f"{self.name} serves no admin's HTTP: that takes stompkit, launched with "
                'LaunchConfig(admin=True), or stomp_broker_factory("stompkit", admin=True)'
            )
        [where] = announced["admin"]
        return f"http://{format_address(where['host'], where['port'])}"

    @property
    def ws_url(self) -> str:
        """URL of STOMP over WebSocket: ``ws://host:port/``.

        Raises BrokerError for a broker that was not launched with ``websocket=True``.
        """
        port = 0 if self._installation is None else self._installation.websocket_port
        if not port:
            raise BrokerError(
                f"{self.name} does not listen for WebSockets: ask for one with"
                " LaunchConfig(websocket=True), or stomp_broker_factory(websocket=True)"
            )
        return f"ws://{format_address(self.server_address[0], port)}/"

    @property
    def log(self) -> str:
        """Output of the broker so far; empty for a given broker."""
        return "" if self._installation is None else self._installation.log

    @property
    def is_emulated(self) -> bool:
        """True if stompkit emulates the requested broker."""
        return self._installation is not None and self._installation.is_emulated

    @property
    def version(self) -> str:
        """The version of the server, as in ``4.3.6``; empty if unknown.

        It is known for ActiveMQ, Artemis and RabbitMQ if they were launched.
        """
        return "" if self._installation is None else self._installation.version

    @property
    def is_running(self) -> bool:
        """True if the broker has neither been stopped nor ended otherwise, as far as is known."""
        if self._installation is None:
            return not self._is_stopped
        return self._installation.is_running

    @property
    def is_paused(self) -> bool:
        """True if the broker was paused, and not resumed since."""
        return self._installation is not None and self._installation.is_paused

    @property
    def records_frames(self) -> bool:
        """True if the frames are recorded."""
        return self._frames is not None

    @property
    def frames(self) -> FrameLog:
        """The frames that clients and broker have exchanged since the last ``reset``."""
        if self._frames is None:
            raise BrokerError(f"the frames of {self.name} are not recorded: {self.frames_remedy}")
        return self._frames

    # Names of destinations.

    def queue(self, name: str = "queue") -> str:
        """Return the destination of a queue that no other test uses; stable for each name."""
        return self.queue_template.format(f"{self._prefix}-{name}")

    def topic(self, name: str = "topic") -> str:
        """Return the destination of a topic that no other test uses; stable for each name."""
        return self.topic_template.format(f"{self._prefix}-{name}")

    @property
    def name_replacements(self) -> dict[str, str]:
        """Replacements that make the names of ``queue()`` and ``topic()`` equal in each run.

        ``/queue/tc7bf14d5-1-orders`` becomes ``/queue/orders``. Pass them to ``assert_golden`` or
        ``Transcript.replaced``. They hold for the names since the last ``new_names``.
        """
        return {f"{self._prefix}-": ""}

    def new_names(self) -> None:
        """Map the same names to new destinations from now on."""
        self._prefix = f"t{self._token}-{next(self._numbers)}"
