"""A broker that runs: where it is, and what tests can do to it."""

from __future__ import annotations

import atexit
import os
from contextlib import ExitStack
from functools import cached_property
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from stompkit.testing._launching.address import format_address
from stompkit.testing._launching.brokers import kind_of
from stompkit.testing._launching.config import LaunchConfig
from stompkit.testing._launching.control import (
    BrokerClock,
    ControlSocket,
    DestinationInfo,
    SessionInfo,
)
from stompkit.testing._launching.errors import BrokerError, BrokerStartError
from stompkit.testing._launching.installation import Installation
from stompkit.testing._launching.process import GuardedProcess

if TYPE_CHECKING:
    from pathlib import Path

    from stompkit.testing._capabilities.capabilities import Capabilities
    from stompkit.testing._frames.log import FrameLog
    from stompkit.testing.client import StompClient
    from stompkit.testing.proxy import Fault, Proxy

__all__ = ["CLOCK_MOVED", "GuardedProcess", "RunningBroker"]

#: The defect that a test does not have to undo.
CLOCK_MOVED: Final = "with its clock moved"
_FRAMES_REMEDY: Final = (
    "ask for a broker with LaunchConfig(frames=True), or given(..., frames=True)"
)


class RunningBroker:
    """A broker to talk to: one that was launched, or one that somebody else runs.

    A context manager: leaving it stops a broker that was launched.  What tests do to a broker
    raises BrokerError where it can't be done, which says why: of somebody else's broker only
    ``reset`` can be asked for.
    """

    name: str
    """The broker's name, without a version."""
    host: str
    """The address that clients connect to."""
    port: int
    """The TCP port that clients connect to."""
    server_address: tuple[str, int]
    """Where the broker itself listens: elsewhere if its frames are recorded."""
    login: str | None
    """The user to log in as; ``None``: CONNECT needs no login."""
    passcode: str | None
    """That user's password."""
    vhost: str
    """What to put into CONNECT's ``host`` header."""
    queue_template: str
    """The destination of a queue, ``{}`` standing for its name."""
    topic_template: str
    """The destination of a topic, likewise."""
    config: LaunchConfig | None
    """What it was launched by; ``None`` for a broker that somebody else runs."""
    directory: Path | None
    """Where its configuration, data and log are; ``None`` for a broker that somebody else runs."""

    def __init__(
        self,
        config: LaunchConfig,
        port: int,
        *,
        versions: str | None = None,
        installation: Installation | None = None,
        tap: Proxy | None = None,
    ) -> None:
        """Describe a broker that listens on ``port``; use ``launch`` or ``given`` to get one.

        ``versions`` is what a client has to offer, as the value of ``accept-version``.
        """
        self.name = kind_of(config.name)
        self._versions = versions
        self._secrets = config.secrets
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
        self._tap = tap
        self._frames = None if tap is None else tap.frames
        #: What to do where frames are wanted and not recorded.
        self.frames_remedy = _FRAMES_REMEDY
        self._refusal: Fault | None = None
        self._proxies: list[Proxy] = []
        self._kept = ExitStack()
        self._is_stopped = False
        self._is_shared = False
        self._token = os.urandom(4).hex()
        self._numbers = count(1)
        self.new_names()
        self._owner = os.getpid()
        if installation is not None or tap is not None:
            atexit.register(self._stop_at_exit)

    def __repr__(self) -> str:
        """Name and address."""
        return f"<RunningBroker {self.name} {self.url}>"

    @property
    def url(self) -> str:
        """The address as ``stomp://host:port``."""
        return f"stomp://{format_address(self.host, self.port)}"

    @property
    def admin_url(self) -> str:
        """Where the admin's HTTP is, as ``http://host:port``; another one after a restart.

        stompkit's only, launched with ``LaunchConfig(admin=True)``.
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
        """Where STOMP is spoken over WebSocket: ``ws://host:port/``.

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
        """All that the broker has written so far; empty for one that somebody else runs."""
        return "" if self._installation is None else self._installation.log

    @property
    def is_emulated(self) -> bool:
        """Whether stompkit plays the broker that was asked for."""
        return self._installation is not None and self._installation.is_emulated

    @property
    def version(self) -> str:
        """The version of the server, as in ``4.3.6``; empty where it is not known.

        It is known of ActiveMQ, Artemis and RabbitMQ that were launched.
        """
        return "" if self._installation is None else self._installation.version

    @property
    def is_running(self) -> bool:
        """Whether it has neither been stopped nor ended otherwise, as far as one can know."""
        if self._installation is None:
            return not self._is_stopped
        return self._installation.is_running

    @property
    def is_paused(self) -> bool:
        """Whether it was paused, and not resumed since."""
        return self._installation is not None and self._installation.is_paused

    @property
    def records_frames(self) -> bool:
        """Whether the frames are recorded."""
        return self._frames is not None

    @property
    def frames(self) -> FrameLog:
        """The frames that clients and broker have exchanged, as far as ``reset`` has left them."""
        if self._frames is None:
            raise BrokerError(f"the frames of {self.name} are not recorded: {self.frames_remedy}")
        return self._frames

    @cached_property
    def capabilities(self) -> Capabilities:
        """What the broker can do; it is asked, each thing when it is first wanted."""
        from stompkit.testing._capabilities.capabilities import Capabilities

        return Capabilities(self)

    @cached_property
    def clock(self) -> BrokerClock:
        """The broker's clock; stompkit's only."""
        self._control()
        return BrokerClock(self._ask)

    def destinations(self) -> dict[str, DestinationInfo]:
        """What the broker has, by the name of the destination; stompkit's only."""
        found = self._ask("destinations")["destinations"]
        return {each["name"]: DestinationInfo(**each) for each in found}

    def sessions(self) -> list[SessionInfo]:
        """Who is connected to the broker; stompkit's only."""
        return [SessionInfo(**each) for each in self._ask("connections")["connections"]]

    # Names, clients and proxies.

    def queue(self, name: str = "queue") -> str:
        """A destination: a queue that no other test uses, the same for the same name."""
        return self.queue_template.format(f"{self._prefix}-{name}")

    def topic(self, name: str = "topic") -> str:
        """A destination: a topic that no other test uses, the same for the same name."""
        return self.topic_template.format(f"{self._prefix}-{name}")

    def new_names(self) -> None:
        """Have the same names stand for other destinations from now on."""
        self._prefix = f"t{self._token}-{next(self._numbers)}"

    def client(
        self, version: str | None = None, *, via: Proxy | None = None, **headers: str
    ) -> StompClient:
        """Open a session; raises as ``StompClient.connect`` does.

        ``version`` is what to offer, by default all that the broker is known to take; ``via`` is
        a proxy to connect through. ``headers`` are further ones of CONNECT, with ``_`` for ``-``;
        those that are known, as ``login``, are replaced.
        """
        from stompkit.testing.client import StompClient

        host, port = (self.host, self.port) if via is None else (via.host, via.port)
        return StompClient.connect(
            host,
            port,
            version=self._versions if version is None else version,
            login=self.login,
            passcode=self.passcode,
            vhost=self.vhost,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )

    def proxy(self, *, seed: int = 0) -> Proxy:
        """Start a proxy in front of the broker, for faults; it is stopped with it, if not before.

        Where frames are recorded they are what comes out of the proxy.
        """
        from stompkit.testing._frames.log import FrameLog
        from stompkit.testing.proxy import Proxy

        frames = FrameLog(secrets=self._secrets)
        proxy = Proxy(self.host, self.port, seed=seed, frames=frames).start()
        self._proxies.append(proxy)
        return proxy

    # What several tests do that share it.

    def share(self) -> None:
        """From now on keep files and ports when it is stopped, so that ``repair`` can start it."""
        self._is_shared = True

    def unshare(self) -> None:
        """Have ``stop`` end it for good, also where it was called before."""
        if self._is_shared:
            self._is_shared = self._is_stopped = False

    @property
    def defects(self) -> tuple[str, ...]:
        """What keeps clients from using it as it was launched, as ends of a sentence.

        Empty, or one or more of ``stopped``, ``killed``, ``paused``, ``cut off``, ``without room on
        its disk``, and ``with its clock moved``.
        """
        if self._is_stopped:
            return ("stopped",)
        installation = self._installation
        if installation is not None and not installation.is_running:
            return ("killed",)
        found = {
            "paused": self.is_paused,
            "without room on its disk": installation is not None and installation.is_disk_full,
            CLOCK_MOVED: "clock" in self.__dict__ and self.clock.is_moved,
            "cut off": self._refusal is not None,
        }
        return tuple(name for name, is_so in found.items() if is_so)

    def repair(self) -> None:
        """Start, resume or reconnect it, and put its clock right: until it has no ``defects``.

        A broker that was stopped is started only while it is shared. Raises BrokerError where that
        does not work.
        """
        if self._is_stopped and not self._is_shared:
            raise BrokerError(f"{self.name} has been stopped, and its files are gone")
        self._is_stopped = False
        installation = self._installation
        if installation is not None and not installation.is_running:
            self.restart()
            return
        if self.is_paused:
            self.resume()
        if installation is not None and installation.is_disk_full:
            self.free_disk()
        if "clock" in self.__dict__ and self.clock.is_moved:
            self.clock.reset()
        if self._refusal is not None:
            self._refusal.remove()
            self._refusal = None

    # What tests do to the broker.

    def reset(self) -> None:
        """See that the next test finds nothing of what was before.

        A broker that was launched with ``control`` cuts all connections and forgets all
        destinations, messages and subscriptions, and its clock is right again. Any other one goes
        on with what it has, and the next test has other names for it. In both cases connections
        are cut where frames are recorded, and recorded frames are forgotten.
        """
        if self._tap is not None:
            self._tap.disconnect()
        if self._installation is not None and self._installation.control is not None:
            self._ask("reset")
            self._clock_is_right()
        self.new_names()
        if self._frames is not None:
            self._frames.clear()

    def kill(self) -> None:
        """Kill the broker with everything that it started, as ``kill -9`` does.

        Nobody can connect to it until ``restart``.  Nothing happens to a broker that has ended.
        """
        installation = self._own("kill")
        if not self._is_stopped:
            self._end(installation, kill=True)

    def restart(self, *, kill: bool = False) -> None:
        """End the broker if it runs, start it again where it was, and wait until it is ready.

        It finds the data that it has left; what it needs to have left any is that it is
        ``persistent``. ``kill`` ends it as ``kill -9`` does, else it shuts down in order.
        Raises BrokerStartError where it does not start.
        """
        installation = self._own("restart")
        if self._is_stopped:
            raise BrokerError(f"{self.name} has been stopped, and its files are gone")
        self._end(installation, kill=kill)
        try:
            installation.start()
        except BrokerStartError as error:
            if error.attempt.log_path is not None:
                installation.keep_directory()
            raise
        self._clock_is_right()
        if self._refusal is not None:
            self._refusal.remove()
            self._refusal = None

    def cut_off(self) -> None:
        """Have clients lose the broker: kill it, or refuse them if somebody else runs it.

        The latter takes a broker whose frames are recorded. Nothing happens the second time.
        """
        if self._installation is not None:
            self.kill()
        elif self._refusal is None:
            if self._tap is None:
                raise BrokerError(
                    f"clients can't be cut off from {self.name} at {self.url}: somebody else runs"
                    " it, and nothing is in between; given(..., frames=True) has that"
                )
            self._refusal = self._tap.refuse()
            self._tap.disconnect()

    def bring_back(self) -> None:
        """Undo ``cut_off``; nothing happens to a broker that clients can reach."""
        if self._installation is not None:
            if not self.is_running:
                self.restart()
        elif self._refusal is not None:
            self._refusal.remove()
            self._refusal = None

    def pause(self) -> None:
        """Stop the broker with everything that it started, as SIGSTOP does.

        Connections stay open, and new ones may be made, but nobody gets an answer.
        """
        self._own("pause").process.pause()

    def resume(self) -> None:
        """Let a paused broker go on."""
        self._own("resume").process.resume()

    def fill_disk(self) -> None:
        """Let every attempt of the broker to write to a file fail, until ``free_disk``; on Linux.

        Whoever starts the broker again finds an empty disk.  What the broker would write to its
        log in the meantime is lost.
        """
        self._own("fill the disk of").process.fill_disk()

    def free_disk(self) -> None:
        """Let the broker write to files again."""
        self._own("free the disk of").process.free_disk()

    def stop(self) -> None:
        """Shut the broker down and remove its temporary directory; stop the proxies before it.

        It is killed if it takes longer than its ``stop_timeout_s``.  Nothing happens the second
        time, or to a broker that somebody else runs. One that tests share keeps its directory until
        the last of them is over.
        """
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._is_shared:
            self._rest()
            return
        atexit.unregister(self._stop_at_exit)
        with ExitStack() as last_first:
            last_first.enter_context(self._kept)
            if self._installation is not None:
                last_first.callback(self._installation.remove_directory)
                last_first.callback(self._installation.close)
            if self._tap is not None:
                last_first.callback(self._tap.stop)
            for proxy in self._proxies:
                last_first.callback(proxy.stop)

    def keep_until_stopped(self, held: ExitStack) -> None:
        """Leave a context when the broker is stopped: what it is reached through."""
        self._kept.enter_context(held)

    def _rest(self) -> None:
        """Stop what clients see of it, and nothing that it takes to start it again."""
        with ExitStack() as last_first:
            if self._installation is not None:
                last_first.callback(self._end, self._installation, kill=False)
            for proxy in self._proxies:
                last_first.callback(proxy.stop)
            self._proxies.clear()

    def _clock_is_right(self) -> None:
        if "clock" in self.__dict__:
            self.clock.is_moved = False

    def __enter__(self) -> Self:
        """Return the broker."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it."""
        self.stop()

    def _own(self, what: str) -> Installation:
        """What there is of a broker that was launched; for somebody else's raise BrokerError."""
        if self._installation is None:
            raise BrokerError(
                f"can't {what} {self.name} at {self.url}: somebody else runs it; leave out --mq to "
                'have a broker launched, or ask for one, as by stomp_broker_factory("stompkit")'
            )
        return self._installation

    def _end(self, installation: Installation, *, kill: bool) -> None:
        """End the broker, and have whoever connects find nobody."""
        if self._tap is not None and self._refusal is None:
            self._refusal = self._tap.refuse()
        installation.end(kill=kill)
        if self._tap is not None:
            self._tap.disconnect()

    def _control(self) -> ControlSocket:
        """Where tests have a say in the broker; raises BrokerError where they have none."""
        control = None if self._installation is None else self._installation.control
        if control is None:
            raise BrokerError(
                f"tests have no say in {self.name}: that takes stompkit, launched with "
                'LaunchConfig(control=True), or by stomp_broker_factory("stompkit")'
            )
        return control

    def _ask(self, do: str, **fields: object) -> dict[str, Any]:
        """Ask the broker for something by its control socket."""
        control = self._control()
        if self.is_paused:
            raise BrokerError(f"{self.name} is paused and can't be asked for {do}")
        return control.ask(do, **fields)

    def _stop_at_exit(self) -> None:
        """Stop the broker with the interpreter, but not with a copy of it that was forked."""
        if os.getpid() == self._owner:
            self.unshare()
            self.stop()
