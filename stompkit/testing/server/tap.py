"""``twist stompkit-test``: the broker that tests launch, its options and its service."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IReactorTime, IReactorUNIX
from twisted.python.usage import UsageError

from stompkit.server import BrokerConfig, BrokerFactory, StoreRunner
from stompkit.server import tap as broker_tap
from stompkit.testing.server._clock import ShiftedClock
from stompkit.testing.server._control import Control, ControlFactory
from stompkit.testing.server._idle import IdleRunner

if TYPE_CHECKING:
    from stompkit.server.operations import Settings

#: Parts of a settings file that a broker for tests does not share with the real one.
_REAL: Final = (
    ("listen",),
    ("websocket",),
    ("beanstalk",),
    ("admin",),
    ("store",),
    ("high_availability",),
    ("log",),
)
#: Parts without which clients may do everything.
_ACCESS: Final = (("auth",), ("rights",))
#: Parts that check the users of the real broker.
_CHECKS: Final = tuple(
    ("auth", key) for key in ("checkers", "anonymous", "certificate_users", "http", "throttle")
)

__all__ = ["ControlService", "Options", "TestedBrokerService", "makeService"]


class Options(broker_tap.Options):
    """The command line: all options of ``twist stompkit``, and more."""

    longdesc = (
        "The broker that tests launch: all that twist stompkit does, with a clock that tests can"
        " move, a state that they can forget, and deviations of other brokers. See its options for"
        " the rest."
    )
    optParameters = [  # noqa: RUF012 (read by usage.Options, which mutates a copy)
        ["control", None, None, "Do what tests ask for at this Unix socket, which is made."],
        [
            "quirk",
            None,
            None,
            "Deviate as other brokers do: a list, with commas, of brokers and rules; -RULE takes"
            " one away again.",
        ],
        [
            "settings-like",
            None,
            None,
            "Use the settings of this file, TOML, without its listeners, store, log and lease."
            " With --auth, users have its groups and rights. Without --auth, clients may do all.",
        ],
        ["parms", None, None, "Ask this module of MorbidQ's (its -a) about users and rights."],
    ]

    def postOptions(self) -> None:
        """Validate the options, so that an error is reported before anything listens."""
        super().postOptions()
        if self["control"] is not None:
            from twisted.internet import reactor

            if not self["control"]:
                raise UsageError("--control takes the path of a socket")
            if not IReactorUNIX.providedBy(reactor):
                raise UsageError("--control: there are no Unix sockets here")
        if self["quirk"] is not None:
            from stompkit.testing.server.quirks import is_morbidq, parse_quirks

            try:
                self["quirks"] = parse_quirks(self["quirk"])
            except ValueError as error:
                raise UsageError(f"--quirk: {error}") from None
            if self["settings"].websockets and is_morbidq(self["quirks"]):
                raise UsageError("--quirk: MorbidQ has no WebSocket: leave --websocket out")
        if self["parms"] is not None:
            from stompkit.testing.server.quirks.parms import Parms

            try:
                self["access"] = Parms(Path(self["parms"]))
            except (ValueError, OSError) as error:
                raise UsageError(f"--parms: {error}") from None

    def _settings(self) -> Settings:
        if self["settings-like"] is None:
            return super()._settings()
        if self["config"] is not None:
            raise UsageError("--settings-like replaces --config: give one of them")
        # It imports stores and their maintenance, which most brokers of tests do without.
        from stompkit.server.operations import SettingsError, read_settings

        without = (*_REAL, *(_CHECKS if self["checkers"] else _ACCESS))
        try:
            path = Path(self["settings-like"]).absolute()
            return read_settings(path, self["overrides"], without=without)
        except SettingsError as error:
            raise SystemExit(str(error)) from None


class ControlService(Service):
    """Listens for the requests of tests, at a Unix socket that only its user can open."""

    def __init__(self, reactor: IReactorUNIX, path: Path, control: Control) -> None:
        """Describe a service at ``path``; a socket left by a killed process is replaced."""
        self._reactor = reactor
        self._path = path
        self._factory = ControlFactory(control)
        self._port: IListeningPort | None = None

    def privilegedStartService(self) -> None:
        """Listen, once the broker may listen: twistd calls this method, twist does not."""
        super().privilegedStartService()
        self._listen()

    def startService(self) -> None:
        """Listen, unless done already. Raises SystemExit on failure."""
        super().startService()
        self._listen()

    def _listen(self) -> None:
        if self._port is not None:
            return
        try:
            if self._path.exists() and stat.S_ISSOCK(self._path.stat().st_mode):
                if _is_served(self._path):
                    raise SystemExit(
                        f"stompkit: another broker listens on {self._path}: stop it, or name"
                        " another path by --control"
                    )
                self._path.unlink()
            address = os.fspath(self._path)
            self._port = self._reactor.listenUNIX(address, self._factory, mode=0o600)
        except (CannotListenError, OSError) as error:
            raise SystemExit(f"stompkit: cannot listen on {self._path}: {error}") from error

    def stopService(self) -> Deferred[None]:
        """Stop listening."""
        super().stopService()
        port, self._port = self._port, None
        return (port and port.stopListening()) or succeed(None)


def _is_served(path: Path) -> bool:
    """Return True if a process listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as attempt:
        attempt.setblocking(False)
        try:
            attempt.connect(os.fspath(path))
        except BlockingIOError:  # its backlog is full
            return True
        except OSError:
            return False
    return True


class TestedBrokerService(MultiService):
    """A broker, and its control socket for tests."""

    #: Not a test of pytest's, despite the name.
    __test__ = False

    def __init__(self, options: Options) -> None:
        """Create the broker and the control socket."""
        from twisted.internet import reactor

        super().__init__()
        self._log = options["log"]
        #: The clock of the broker.
        self.clock = clock = ShiftedClock(cast("IReactorTime", reactor))
        self._options = options
        self._runner: IdleRunner | None = None
        self._broker = broker_tap.makeService(
            options, clock=cast("IReactorTime", clock), make=self._make
        )
        if options["control"] is not None:
            control = Control(self._broker.factory, clock, self._runner)
            path = Path(options["control"]).absolute()
            # Started before the broker, which announces that all is ready.
            listening = ControlService(cast("IReactorUNIX", reactor), path, control)
            listening.setServiceParent(self)
        self._broker.setServiceParent(self)

    @property
    def factory(self) -> BrokerFactory:
        """The factory for the protocol of each client."""
        return self._broker.factory

    def setServiceParent(self, parent: object) -> None:
        """Join an application, whose log starts after that."""
        super().setServiceParent(parent)
        self._log.serve(parent)

    def _make(
        self,
        config: BrokerConfig,
        clock: IReactorTime,
        *,
        runner: StoreRunner | None,
        **rest: Any,
    ) -> BrokerFactory:
        """Create the broker, possibly with quirks."""
        from twisted.internet import reactor

        if runner is not None:
            runner = self._runner = IdleRunner(runner)
        # The time to close depends on clients and networks, not on the shifted clock.
        rest["closing_clock"] = reactor
        rest["runner"] = runner
        if "access" in self._options:
            rest["authenticator"] = rest["authoriser"] = self._options["access"]
        if "quirks" in self._options:
            from stompkit.testing.server.quirks import factory_for

            return factory_for(self._options["quirks"], config, clock, **rest)
        return BrokerFactory(config, clock, **rest)


def makeService(options: Options) -> TestedBrokerService:
    """Create the service that twist runs."""
    return TestedBrokerService(options)
