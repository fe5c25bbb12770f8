"""A broker that is launched: its files, its ports, its process, and how it is started again."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from stompkit.testing._launching.brokers import Launcher
from stompkit.testing._launching.config import LaunchConfig
from stompkit.testing._launching.control import ControlSocket
from stompkit.testing._launching.errors import Attempt, BrokerError, BrokerStartError, describe_exit
from stompkit.testing._launching.polling import wait_until
from stompkit.testing._launching.ports import Ports, is_taken
from stompkit.testing._launching.probe import NotReady, Probe
from stompkit.testing._launching.process import GuardedProcess, ProcessLog

__all__ = ["Installation", "check_port", "port_was_taken"]

#: How long one CONNECT may go unanswered before another is tried, in seconds.
_PROBE_S: Final = 5.0
#: How long the last CONNECT may take, in seconds, when the time is nearly over.
_LEAST_PROBE_S: Final = 0.1
#: How long to believe that a broker that refuses CONNECT is still starting, in seconds.
_REFUSED_S: Final = 3.0
_PORT_TAKEN: Final = re.compile(r"eaddrinuse|address already in use|BindException", re.IGNORECASE)


class Installation:
    """One broker on this machine; started, ended, and started again where it was."""

    def __init__(self, launcher: Launcher, config: LaunchConfig) -> None:
        """Take a complete configuration and make the directory; nothing runs yet."""
        self.port = config.port
        """The TCP port that the broker listens on; 0 until it is known."""
        self.websocket_port = config.websocket_port
        """The TCP port for WebSockets; 0 until it is known, or where there is none."""
        self.is_emulated = False
        """Whether another broker plays the one that was asked for."""
        self.version = ""
        """The version of the server; empty where it is not known."""
        self.control: ControlSocket | None = None
        """Where tests have a say in the broker."""
        self._launcher = launcher
        self._config = config
        self._process: GuardedProcess | None = None
        self._ports = Ports(config.host)
        self._kept: list[socket.socket] = []
        self._final_log: str | None = None
        self._temporary = config.directory is None
        if config.directory is None:
            self.directory = Path(tempfile.mkdtemp(prefix=_directory_prefix(config.name)))
        else:
            self.directory = config.directory.absolute()
            self.directory.mkdir(parents=True, exist_ok=True)
        #: What the broker has said of itself when it was ready, where it does that.
        self.announcement: dict[str, Any] = {}
        self._log = ProcessLog(self.directory)

    @property
    def process(self) -> GuardedProcess:
        """The broker's process; raises BrokerError when there is none."""
        if self._process is None or self._process.status() is not None:
            raise BrokerError(f"{self._config.name} does not run: it has ended, or was ended")
        return self._process

    @property
    def is_running(self) -> bool:
        """Whether the broker's process runs."""
        return self._process is not None and self._process.status() is None

    @property
    def is_paused(self) -> bool:
        """Whether the broker's process was paused, and not resumed since."""
        return self._process is not None and self._process.is_paused

    @property
    def is_disk_full(self) -> bool:
        """Whether the broker's process can't write to files, because somebody wanted that."""
        return self._process is not None and self._process.is_disk_full

    @property
    def log(self) -> str:
        """All that the broker has written since it was launched."""
        return self._log.text() if self._final_log is None else self._final_log

    def start(self) -> None:
        """Start the broker, at the same port if it is started again, and wait until it is ready.

        Raises BrokerStartError where it does not start.
        """
        websocket_port = self.websocket_port
        config = replace(self._config, port=self._choose_port(), websocket_port=websocket_port)
        prepared = self._launcher.prepare(config, self.directory, self._ports.take)
        if prepared.note:
            self._log.write(prepared.note)
        started = time.monotonic()
        self._process = process = GuardedProcess(
            prepared.command,
            prepared.environment,
            self.directory,
            config.stop_timeout_s,
            temporary=self._temporary,
            log=self._log,
            working_directory=prepared.working_directory,
        )
        wait = _Wait(self._launcher, config, process, prepared.announce)
        port = wait.until_ready()
        if port is None:
            waited_s = time.monotonic() - started
            raise self._failed(process, waited_s, wait.last, is_refused=wait.is_refused)
        self.port = port
        self.announcement = wait.announcement
        self.websocket_port = wait.websocket_port
        self.is_emulated = prepared.is_emulated
        self.version = prepared.version
        self.control = None if prepared.control is None else ControlSocket(prepared.control)

    def end(self, *, kill: bool) -> None:
        """End the broker, which can be started again; harmless when it has ended."""
        if self._process is not None:
            if kill:
                self._process.kill()
            else:
                self._process.stop()
            self._keep_ports()
        if self.control is not None:
            self.control.close()

    def close(self, *, kill: bool = False) -> None:
        """End the broker for good, and give back the ports that are not in use."""
        self.end(kill=kill)
        self._ports.close()
        for kept in self._kept:
            kept.close()
        self._kept.clear()

    def keep_directory(self) -> None:
        """Leave the broker's files where they are: somebody wants to see them."""
        self._temporary = False

    def remove_directory(self) -> None:
        """Remove the broker's files, if nobody else wants them."""
        self._final_log = self.log
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _choose_port(self) -> int:
        """The port that the broker shall be told."""
        config = self._config
        if self.port:
            check_port(replace(config, port=self.port))
            return self.port
        try:
            return 0 if self._launcher.chooses_port else self._ports.take()
        except OSError as error:
            raise _unusable(config, f"can't be listened on ({error.strerror})") from error

    def _keep_ports(self) -> None:
        """See that nobody else gets the ports while the broker does not run.

        Not even a client that tries to connect to one: the system may give it this very port to
        connect from, and it would be connected with itself.
        """
        if sys.platform != "linux" or self._kept:
            return
        family = socket.AF_INET6 if ":" in self._config.host else socket.AF_INET
        for port in filter(None, (self.port, self.websocket_port)):
            kept = socket.socket(family, socket.SOCK_STREAM)
            try:
                kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                kept.bind((self._config.host, port))
            except OSError:
                # Somebody was faster; whoever starts the broker again will be told.
                kept.close()
            else:
                self._kept.append(kept)

    def _failed(
        self, process: GuardedProcess, waited_s: float, last: str, *, is_refused: bool
    ) -> BrokerStartError:
        """Say why the broker is not ready, once it has been stopped and its log is complete."""
        status = process.status()
        process.kill()
        log = process.log()
        if status is not None:
            problem = f"ended after {waited_s:.1f} s with {describe_exit(status)}"
            if status == os.EX_USAGE:
                # What twist says first; the rest of its help would be all that is shown.
                said = (line for line in log.splitlines() if line.startswith("Error: "))
                problem += f" ({next(said, 'wrong usage')})"
            remedies = ["run the command by hand, in the directory of its log"]
        else:
            problem = f"was not ready after {waited_s:.1f} s: it {last}"
            remedies = ["give a slow machine more time: LaunchConfig(start_timeout_s=...)"]
            if is_refused:
                # It is there, and more time would change nothing.
                login = self._config.login
                remedies = [
                    "see why it refuses CONNECT; it may not take everybody"
                    if login is None
                    else f"see whether this broker can have the login {login!r} with its passcode:"
                    " some take blanks off, or give a character another meaning"
                ]
        if _PORT_TAKEN.search(log):
            remedies.insert(0, "the port is in use: leave it out to have a free one chosen")
        if self._config.arguments:
            arguments = " ".join(self._config.arguments)
            remedies.append(f"leave out the arguments that were added: {arguments}")
        return BrokerStartError(
            Attempt(self._config.name, problem, process.command, self._log.path, log, remedies)
        )


def _directory_prefix(name: str) -> str:
    """How a broker's temporary directory begins; colons separate paths in lists of them."""
    return f"stompkit-{name.replace(':', '-')}-"


def check_port(config: LaunchConfig) -> None:
    """Raise BrokerStartError if the port of the configuration can't be listened on."""
    try:
        if is_taken(config.host, config.port):
            raise _unusable(config, "is in use")
    except OSError as error:
        raise _unusable(config, f"can't be listened on ({error.strerror})") from error


def _unusable(config: LaunchConfig, problem: str) -> BrokerStartError:
    where = f"{config.host} port {config.port}"
    remedies = ["leave the port out (or make it 0) to have a free one chosen"]
    return BrokerStartError(
        Attempt(config.name, f"was not run: {where} {problem}", remedies=remedies)
    )


def port_was_taken(error: BrokerStartError) -> bool:
    """Whether the broker did not start because somebody else listened on its port."""
    return _PORT_TAKEN.search(error.attempt.log) is not None


class _GivenUpError(Exception):
    """The broker won't become ready however long one waits."""


class _Wait:
    """Asks a broker that has just been started whether it is ready, until it is."""

    def __init__(
        self,
        launcher: Launcher,
        config: LaunchConfig,
        process: GuardedProcess,
        announce: Path | None,
    ) -> None:
        """Ask as the configuration says, at the port that ``announce``, if any, will tell."""
        self.last = "was not asked"
        """Why it is not ready, as the end of a sentence."""
        self.websocket_port = 0
        """The port for WebSockets that was announced, if one was."""
        self._host = config.host
        self._port = config.port
        self._timeout_s = config.start_timeout_s or 0.0
        self._process = process
        self._announce = announce
        self._probe = Probe(
            launcher.versions, config.vhost or config.host, config.login, config.passcode
        )
        self._refused_since: float | None = None
        #: What the broker has written to its file, once it has.
        self.announcement: dict[str, Any] = {}

    @property
    def is_refused(self) -> bool:
        """Whether it has answered CONNECT, but not by CONNECTED."""
        return self._refused_since is not None

    def until_ready(self) -> int | None:
        """Return the port once CONNECT is answered there, ``None`` when that is not to be."""
        deadline = time.monotonic() + self._timeout_s
        try:
            return wait_until(lambda: self._ready_port(deadline), self._timeout_s)
        except _GivenUpError:
            return None

    def _ready_port(self, deadline: float) -> int | None:
        """Ask the broker once."""
        port = self._announced()
        if port is not None:
            remaining_s = max(deadline - time.monotonic(), _LEAST_PROBE_S)
            try:
                self._probe.run(self._host, port, min(_PROBE_S, remaining_s))
            except NotReady as reason:
                self._note(reason)
                port = None
        # Also after an answer: it could have been somebody else's broker that gave it.
        if self._process.status() is not None:
            raise _GivenUpError
        return port

    def _note(self, reason: NotReady) -> None:
        """Remember why the broker is not ready, and for how long it has been refusing."""
        self.last = str(reason)
        now = time.monotonic()
        if not reason.refused:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since > _REFUSED_S:
            raise _GivenUpError

    def _announced(self) -> int | None:
        """The port to ask at, if it is known yet."""
        if self._announce is None:
            return self._port
        try:
            self.announcement = json.loads(self._announce.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self.last = "did not tell its port"
            return None
        said = self.announcement
        self.websocket_port = next((each["port"] for each in said.get("websocket", ())), 0)
        announced: int = said["endpoints"][0]["port"]
        return announced
