"""``twistd stompkit`` and ``twist stompkit``: options and service."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

from twisted.application.service import Service
from twisted.cred.credentials import IAnonymous, IUsernameHashedPassword, IUsernamePassword
from twisted.cred.strcred import AuthOptionMixin
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.usage import Options as UsageOptions
from twisted.python.usage import UsageError

from stompkit.frames import AFTER_LOGIN
from stompkit.server.listen.factory import BrokerFactory
from stompkit.server.listen.origins import Origins
from stompkit.server.log.observer import LogSwitch
from stompkit.server.login.auth import checkers_from
from stompkit.server.process.allocator import keep_freed_memory
from stompkit.server.process.assembly import MakeFactory
from stompkit.server.process.collector import CollectorSettings
from stompkit.server.process.daemon import DaemonStart
from stompkit.server.process.lifecycle import Lifecycle
from stompkit.server.process.out_of_memory import MemoryWatch
from stompkit.server.process.reload import Reloader
from stompkit.server.settings.checks import check_wsproto
from stompkit.server.settings.endpoint_checks import check_endpoint
from stompkit.server.settings.option_values import TABLES, Tables
from stompkit.server.settings.process import Settings
from stompkit.server.settings.reading import SettingsError, merged, parse_settings, read_settings

__all__ = ["BrokerService", "Options", "makeService"]


class Options(UsageOptions, AuthOptionMixin):
    """The command line."""

    synopsis = "[options]"
    longdesc = (
        "A broker for STOMP 1.0, 1.1 and 1.2 with queues (/queue/NAME), topics (/topic/NAME),"
        " fan-out to several queues (/fanout/NAME) and dead-letter queues (/dlq/NAME). With --data,"
        " messages survive a restart; without it, they are kept in memory. Without --endpoint, it"
        " listens on port 61613 of the loopback interface only. Without --auth, clients need no"
        " password. `stompkit show-config` prints all settings;"
        " 'Broker configuration' in the documentation describes them. Command line options override"
        " the file of --config, which SIGHUP reloads. To run in the foreground: stompkit serve,"
        " twist stompkit, or twistd --nodaemon stompkit."
    )
    optParameters = [  # noqa: RUF012 (read by usage.Options, which mutates a copy)
        ["config", None, None, "Configuration file, TOML; see stompkit show-config."],
        [
            "data",
            None,
            None,
            "Directory for persistent messages; created if it is missing. It is locked by one"
            " broker. A second broker waits, and takes over when the first one ends.",
        ],
        [
            "sync",
            None,
            None,
            "When data is written to disk: always (before the receipt), interval:MS or never."
            " [default: always]",
        ],
        [
            "lock-timeout",
            None,
            None,
            "Seconds to wait for the lock of --data while another broker holds it; 0: do not"
            " wait. [default: unlimited]",
        ],
        [
            "announce",
            None,
            None,
            "Write the process id and all listening addresses to this file, as JSON, when they"
            " accept connections. For port 0 the file contains the actual port.",
        ],
        [
            "heart-beat",
            None,
            None,
            "Heart-beat intervals in milliseconds: sent by the broker, expected from clients."
            " [default: 1000,1000]",
        ],
        ["max-connections", None, None, "Maximum number of client connections. [default: 10000]"],
        [
            "max-body",
            None,
            None,
            f"Maximum body of a frame, in bytes. [default: {AFTER_LOGIN.max_body_bytes}]",
        ],
        [
            "prefetch",
            None,
            None,
            "Maximum unacknowledged messages of a subscription. [default: 100]",
        ],
        ["log-format", None, None, "Log format: text or json. [default: that of twistd or twist]"],
    ]
    optFlags = [  # noqa: RUF012 (as above)
        [
            "anonymous",
            None,
            "Accept clients without login. Without --auth: suppress the warning about that.",
        ],
        ["log-frames", None, "Log all frames, without bodies and passcodes; slow."],
        ["no-throttle", None, "Do not limit failed logins; for tests of clients."],
    ]
    supportedInterfaces = (IUsernamePassword, IUsernameHashedPassword, IAnonymous)

    def __init__(self) -> None:
        """Start without endpoints and checkers."""
        super().__init__()
        self["endpoints"] = []
        self["websockets"] = []
        self["origins"] = []
        self["checkers"] = []
        self["admin"] = []
        self["beanstalks"] = []

    def opt_endpoint(self, description: str) -> None:
        """Listen on this Twisted endpoint, for example tcp:61613; repeatable.

        [default: tcp:61613:interface=127.0.0.1]
        """
        try:
            check_endpoint(description)
        except ValueError as error:
            raise UsageError(f"--endpoint: {error}") from None
        self["endpoints"].append(description)

    def opt_admin(self, description: str) -> None:
        """Serve the admin interface and the console on this Twisted endpoint; repeatable.

        For example tcp:15613:interface=127.0.0.1 or unix:/run/stompkit-admin.sock. Other
        interfaces require a token, see [admin] in the output of stompkit show-config.
        """
        try:
            check_endpoint(description)
        except ValueError as error:
            raise UsageError(f"--admin: {error}") from None
        self["admin"].append(description)

    def opt_websocket(self, description: str) -> None:
        """Listen for STOMP over WebSocket on this endpoint, for example tcp:15674; repeatable.

        Requires pip install 'stompkit[websocket]'. For wss:// use a TLS endpoint, stomps:.
        """
        try:
            check_wsproto()
            check_endpoint(description)
        except (ValueError, ImportError) as error:
            raise UsageError(f"--websocket: {error}") from None
        self["websockets"].append(description)

    def opt_allow_origin(self, origin: str) -> None:
        """Allow pages of this origin to use --websocket; repeatable.

        For example https://shop.example, or * for all origins. Pages of the broker's host are
        always allowed.
        """
        try:
            Origins([origin])
        except ValueError as error:
            raise UsageError(f"--allow-origin: {error}") from None
        self["origins"].append(origin)

    def opt_beanstalk(self, description: str) -> None:
        """Listen for beanstalkd clients on this Twisted endpoint; repeatable.

        For example tcp:11300:interface=127.0.0.1.
        """
        try:
            check_endpoint(description)
        except ValueError as error:
            raise UsageError(f"--beanstalk: {error}") from None
        self["beanstalks"].append(description)

    def opt_auth(self, description: str) -> None:
        """Authenticate users with this, for example stompkit:FILE; repeatable. See --help-auth."""
        try:
            checkers_from([description])
        except (ValueError, OSError) as error:
            raise UsageError(f"--auth: {error}") from None
        self["checkers"].append(description)

    def postOptions(self) -> None:
        """Check all options, so that errors are reported before the broker listens."""
        self["overrides"] = self._overrides()
        self["settings"] = settings = self._settings()
        file = settings.log.file
        path = None if file is None else Path(file).absolute()
        self["log"] = LogSwitch(settings.log.format or "text", path)
        runner = getattr(self, "parent", None)
        self["daemon"] = DaemonStart(runner)
        if runner is not None and (settings.log.format is not None or path is not None):
            self["log"].install(runner)

    def _settings(self) -> Settings:
        if self["config"] is None:
            try:
                return parse_settings("", "the options", self["overrides"])
            except SettingsError as error:
                raise UsageError(str(error)) from None
        # twistd may change the working directory before the file is read again.
        self["config"] = Path(self["config"]).absolute()
        try:
            return read_settings(self["config"], self["overrides"])
        except SettingsError as error:
            raise SystemExit(str(error)) from None

    def _overrides(self) -> dict[str, Any]:
        """Return the options as tables of the settings file."""
        given: list[Tables] = []
        for option, tables in TABLES.items():
            if self[option] is not None:
                try:
                    given.append(tables(self[option]))
                except ValueError as error:
                    raise UsageError(f"--{option} {error}") from None
        if self["endpoints"]:
            given.append({"listen": [{"endpoint": each} for each in self["endpoints"]]})
        if self["admin"]:
            given.append({"admin": {"endpoints": self["admin"]}})
        if self["websockets"]:
            given.append(
                {
                    "websocket": [
                        {"endpoint": each, "allow_origins": self["origins"]}
                        for each in self["websockets"]
                    ]
                }
            )
        elif self["origins"]:
            raise UsageError(
                "--allow-origin goes with --websocket; for one of the file set allow_origins there"
            )
        if self["beanstalks"]:
            given.append({"beanstalk": {"endpoints": self["beanstalks"]}})
        if self["checkers"]:
            given.append({"auth": {"checkers": self["checkers"]}})
        if self["anonymous"]:
            given.append({"auth": {"anonymous": True}})
        if self["no-throttle"]:
            given.append({"auth": {"throttle": {"enabled": False}}})
        if self["log-frames"]:
            given.append({"log": {"frames": True}})
        return reduce(merged, given, {})


class BrokerService(Service):
    """A broker as a Twisted service; a fatal error ends the process and reports the reason."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        log: LogSwitch,
        reloader: Reloader | None = None,
        daemon: DaemonStart | None = None,
    ) -> None:
        """Start with the broker, its log, and the reloader of its settings at SIGHUP.

        ``daemon`` receives the reason of a failed start, if the process is a daemon.
        """
        self._lifecycle = lifecycle
        self._log = log
        self._reloader = reloader
        self._daemon = DaemonStart(None) if daemon is None else daemon
        self._collector = CollectorSettings()
        self._memory = MemoryWatch()
        self._is_started = False

    @property
    def lifecycle(self) -> Lifecycle:
        """The lifecycle of the broker."""
        return self._lifecycle

    @property
    def factory(self) -> BrokerFactory:
        """The factory of the protocol of each client."""
        return self._lifecycle.factory

    def setServiceParent(self, parent: object) -> None:
        """Join an application, whose log starts after this call."""
        super().setServiceParent(parent)
        self._log.serve(parent)

    def privilegedStartService(self) -> None:
        """Listen, while twistd may still open ports below 1024.

        Not with a store: its files have to belong to the user whom twistd changes to, and the
        broker does not listen before it has them.
        """
        super().privilegedStartService()
        if not self._lifecycle.has_files:
            self._start()

    def startService(self) -> None:
        """Start the broker, unless it has been started."""
        super().startService()
        self._start()

    def _start(self) -> None:
        if self._is_started:
            return
        self._is_started = True
        try:
            self._begin()
        except SystemExit as end:
            raise self._daemon.failed(end) from end
        finally:
            self._daemon.done()

    def _begin(self) -> None:
        # First, since a process notified of readiness may send a signal at once.
        if self._reloader is not None:
            self._reloader.install()
        self._collector.apply()
        keep_freed_memory()
        self._memory.apply()
        self._lifecycle.start()

    def stopService(self) -> Deferred[None]:
        """Disconnect all clients, and release all resources."""
        super().stopService()
        if self._reloader is not None:
            self._reloader.remove()
        self._collector.undo()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self._lifecycle.stop()
        self._memory.undo()


def makeService(
    options: Options, *, clock: IReactorTime | None = None, make: MakeFactory = BrokerFactory
) -> BrokerService:
    """Return the service that twistd runs; ``clock`` and ``make`` are passed to the lifecycle."""
    announce = Path(options["announce"]).absolute() if options["announce"] else None
    if announce is not None and announce.exists() and not announce.is_file():
        # It is replaced as a whole, which would remove a device.
        raise SystemExit(f"stompkit: --announce: {announce} is not a file")
    try:
        lifecycle = Lifecycle(options["settings"], announce, clock=clock, make=make)
    except (ValueError, OSError) as error:
        raise SystemExit(f"stompkit: {error}") from None
    log, daemon = options["log"], options["daemon"]
    reloader = Reloader(lifecycle, options["config"], options["overrides"], log)
    return BrokerService(lifecycle, log, reloader, daemon)
