"""A running broker: its address, and the operations that tests can perform on it."""

from __future__ import annotations

import atexit
import os
from contextlib import ExitStack
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from stompkit.testing.launching.config import LaunchConfig
from stompkit.testing.launching.control import (
    BrokerClock,
    ControlSocket,
    DestinationInfo,
    SessionInfo,
)
from stompkit.testing.launching.description import BrokerDescription
from stompkit.testing.launching.errors import BrokerError, BrokerStartError
from stompkit.testing.launching.installation import Installation

if TYPE_CHECKING:
    from stompkit.testing.capabilities.capabilities import Capabilities
    from stompkit.testing.client import StompClient
    from stompkit.testing.proxy import Fault, Proxy

__all__ = ["CLOCK_MOVED", "RunningBroker"]

#: The defect that a test does not need to undo.
CLOCK_MOVED: Final = "with its clock moved"
#: The remedy for a CONNECT that a given broker refuses.
_LOGIN_REMEDY: Final = (
    "tests log in to a broker that runs already as --mq-login, --mq-passcode and --mq-vhost say, or"
    " given(..., login=..., passcode=..., vhost=...)"
)


class RunningBroker(BrokerDescription):
    """A running broker: one that was launched, or one that was given.

    As a context manager, it stops a launched broker on exit.  An operation that is impossible
    raises BrokerError with the reason. A given broker supports only ``reset``.
    """

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

        ``versions`` is the value of ``accept-version`` for clients.
        """
        super().__init__(config, port, installation=installation, tap=tap)
        self._versions = versions
        self._secrets = config.secrets
        self._tap = tap
        self._refusal: Fault | None = None
        self._proxies: list[Proxy] = []
        self._kept = ExitStack()
        self._is_shared = False
        self._owner = os.getpid()
        if installation is not None or tap is not None:
            atexit.register(self._stop_at_exit)

    @cached_property
    def capabilities(self) -> Capabilities:
        """Capabilities of the broker; each is probed on first use."""
        from stompkit.testing.capabilities.capabilities import Capabilities

        return Capabilities(self)

    @cached_property
    def clock(self) -> BrokerClock:
        """The broker's clock; stompkit only."""
        self._control()
        return BrokerClock(self._ask)

    def destinations(self) -> dict[str, DestinationInfo]:
        """Return the destinations of the broker by name; stompkit only."""
        found = self._ask("destinations")["destinations"]
        return {each["name"]: DestinationInfo(**each) for each in found}

    def sessions(self) -> list[SessionInfo]:
        """Return the sessions of the connected clients; stompkit only."""
        return [SessionInfo(**each) for each in self._ask("connections")["connections"]]

    # Clients and proxies.

    def client(
        self, version: str | None = None, *, via: Proxy | None = None, **headers: str
    ) -> StompClient:
        """Open a session; raises as ``StompClient.connect`` does.

        ``version`` is the version to offer, by default all that the broker is known to support;
        ``via`` is a proxy to connect through. ``headers`` are added to CONNECT, with ``_`` for
        ``-``; they replace known ones such as ``login``.
        """
        from stompkit.testing.client import RefusedError, StompClient

        host, port = (self.host, self.port) if via is None else (via.host, via.port)
        try:
            return StompClient.connect(
                host,
                port,
                version=self._versions if version is None else version,
                login=self.login,
                passcode=self.passcode,
                vhost=self.vhost,
                headers={name.replace("_", "-"): value for name, value in headers.items()},
            )
        except RefusedError as error:
            if self.config is None:
                error.add_note(_LOGIN_REMEDY)
            raise

    def proxy(self, *, seed: int = 0) -> Proxy:
        """Start a proxy in front of the broker, for faults; it is stopped with the broker.

        If frames are recorded, the log contains the output of the proxy.
        """
        from stompkit.testing.frames.log import FrameLog
        from stompkit.testing.proxy import Proxy

        frames = FrameLog(secrets=self._secrets)
        proxy = Proxy(self.host, self.port, seed=seed, frames=frames).start()
        # Their logs need memory.
        self._proxies = [each for each in self._proxies if not each.is_stopped]
        self._proxies.append(proxy)
        return proxy

    # Operations on a broker shared by tests.

    def share(self) -> None:
        """Keep files and ports after ``stop``, so that ``repair`` can start the broker again."""
        self._is_shared = True

    def unshare(self) -> None:
        """Make ``stop`` end the broker for good, also if it was called before."""
        if self._is_shared:
            self._is_shared = self._is_stopped = False

    @property
    def is_gone(self) -> bool:
        """True if the broker was stopped for good."""
        return self._is_stopped and not self._is_shared

    @property
    def defects(self) -> tuple[str, ...]:
        """Reasons why clients cannot use the broker as it was launched, as ends of a sentence.

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
        """Start, resume or reconnect the broker, and reset its clock, until it has no ``defects``.

        A stopped broker is started only while it is shared. Raises BrokerError on failure.
        """
        if self._is_stopped and not self._is_shared:
            raise BrokerError(
                f"{self.name} has been stopped, and its files are gone: launch another one, as by"
                " stomp_broker_factory()"
            )
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

    # Control operations.

    def reset(self) -> None:
        """Isolate the next test from everything before.

        A broker that was launched with ``control`` closes all connections, deletes all
        destinations, messages and subscriptions, and resets its clock. Any other broker keeps its
        state, and the next test gets other names. In both cases connections are closed if frames
        are recorded, and recorded frames are cleared.
        """
        if self._frames is not None:
            self._frames.start_over()
        if self._tap is not None:
            self._tap.disconnect()
        if self._installation is not None and self._installation.control is not None:
            self._ask("reset")
            self._clock_is_right()
        self.new_names()
        if self._frames is not None:
            self._frames.clear()

    def kill(self) -> None:
        """Kill the broker and all its descendants, as ``kill -9`` does.

        Clients cannot connect until ``restart``.  Nothing happens if the broker has ended.
        """
        installation = self._own("kill")
        if not self._is_stopped:
            self._end(installation, kill=True)

    def restart(self, *, kill: bool = False) -> None:
        """End the broker if it runs, restart it with the same settings, and wait until ready.

        The broker recovers its data if it is ``persistent``. ``kill`` ends it as ``kill -9`` does;
        otherwise it shuts down in order. Raises BrokerStartError if it does not start.
        """
        installation = self._own("restart")
        if self._is_stopped:
            raise BrokerError(
                f"{self.name} has been stopped, and its files are gone: launch another one, as by"
                " stomp_broker_factory()"
            )
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
        """Cut clients off: kill a launched broker, or refuse connections to a given one.

        The latter requires that frames are recorded. Nothing happens the second time.
        """
        if self._installation is not None:
            self.kill()
        elif self._refusal is None:
            if self._tap is None:
                raise BrokerError(
                    f"clients cannot be cut off from {self.name} at {self.url}: somebody else runs"
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
        """Stop the broker and all its descendants, as SIGSTOP does.

        Connections stay open, and new ones may be opened, but clients get no answer.
        """
        self._own("pause").process.pause()

    def resume(self) -> None:
        """Resume a paused broker."""
        self._own("resume").process.resume()

    def fill_disk(self) -> None:
        """Make every write of the broker to a file fail, until ``free_disk``; Linux only.

        After a restart the disk has room again.  Log output of this period is lost.
        """
        self._own("fill the disk of").process.fill_disk()

    def free_disk(self) -> None:
        """Allow the broker to write to files again."""
        self._own("free the disk of").process.free_disk()

    def stop(self) -> None:
        """Shut the broker down and remove its temporary directory; stop its proxies first.

        It is killed after ``stop_timeout_s`` seconds.  Nothing happens the second time, or to a
        given broker. A shared broker keeps its directory until the last test has ended.
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
        """Register a context to exit when the broker is stopped, such as a tunnel to it."""
        self._kept.enter_context(held)

    def _rest(self) -> None:
        """Stop the broker and its proxies, but keep everything that a restart needs."""
        with ExitStack() as last_first:
            if self._installation is not None:
                last_first.callback(self._end, self._installation, kill=False)
            for proxy in self._proxies:
                last_first.callback(proxy.stop)
            self._proxies.clear()

    def _clock_is_right(self) -> None:
        if "clock" in self.__dict__:
            self.clock.was_reset()

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
        """Return the installation of a launched broker; raise BrokerError for a given one."""
        if self._installation is None:
            raise BrokerError(
                f"cannot {what} {self.name} at {self.url}: somebody else runs it; leave out --mq"
                ' to have a broker launched, or ask for one, as by stomp_broker_factory("stompkit")'
            )
        return self._installation

    def _end(self, installation: Installation, *, kill: bool) -> None:
        """End the broker and make connections to it fail."""
        if self._tap is not None and self._refusal is None:
            self._refusal = self._tap.refuse()
        installation.end(kill=kill)
        if self._tap is not None:
            self._tap.disconnect()

    def _control(self) -> ControlSocket:
        """Return the control socket; raise BrokerError if the broker has none."""
        control = None if self._installation is None else self._installation.control
        if control is None:
            raise BrokerError(
                f"tests cannot control {self.name}: that takes stompkit, launched with "
                'LaunchConfig(control=True), or by stomp_broker_factory("stompkit")'
            )
        return control

    def _ask(self, do: str, **fields: object) -> dict[str, Any]:
        """Send a request to the broker over its control socket."""
        control = self._control()
        if self.is_paused:
            raise BrokerError(
                f"{self.name} is paused and cannot be asked for {do}: resume() it first"
            )
        return control.ask(do, **fields)

    def _stop_at_exit(self) -> None:
        """Stop the broker at interpreter exit, but not in a forked child."""
        if os.getpid() == self._owner:
            self.unshare()
            self.stop()
