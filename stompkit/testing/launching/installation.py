"""A launched broker: its files, ports and process, and its restart."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from stompkit.testing.launching.brokers import Launcher
from stompkit.testing.launching.config import LaunchConfig
from stompkit.testing.launching.control import ControlSocket
from stompkit.testing.launching.errors import Attempt, BrokerError, BrokerStartError, describe_exit
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.launching.ports import Ports, is_taken
from stompkit.testing.launching.probe import NotReadyError, Probe
from stompkit.testing.launching.processes.leftovers import remove_at_exit, remove_when_killed
from stompkit.testing.launching.processes.process import GuardedProcess, ProcessLog

__all__ = ["Installation", "check_port", "port_was_taken"]

#: Timeout in seconds of one CONNECT; then another one is tried.
_PROBE_S: Final = 5.0
#: Minimum timeout in seconds of the last CONNECT before the deadline.
_LEAST_PROBE_S: Final = 0.1
#: Time in seconds for which a broker that refuses CONNECT counts as still starting.
_REFUSED_S: Final = 3.0
#: Remedies for errors of the system that prevent a broker from running.
_REMEDIES: Final = {
    errno.EMFILE: "raise the limit of open files (ulimit -n), or close what tests have left open",
    errno.ENFILE: "close files: all processes of this machine together have too many open",
    errno.ENOSPC: "make room there, or name another place by TMPDIR or LaunchConfig(directory=...)",
    errno.EDQUOT: "make room there, or name another place by TMPDIR or LaunchConfig(directory=...)",
    errno.EACCES: "name a place that you can write to, by TMPDIR or LaunchConfig(directory=...)",
    errno.EROFS: "name a place that you can write to, by TMPDIR or LaunchConfig(directory=...)",
    errno.ENOENT: "name a place that there is, by TMPDIR or LaunchConfig(directory=...)",
    errno.ENAMETOOLONG: "name a shorter place, by TMPDIR or LaunchConfig(directory=...)",
    errno.EADDRNOTAVAIL: "name an address of this machine: LaunchConfig(host=...)",
    errno.EAFNOSUPPORT: "name an address of this machine: LaunchConfig(host=...)",
}
_PORT_TAKEN: Final = re.compile(r"eaddrinuse|address already in use|BindException", re.IGNORECASE)


_NO_DESCRIPTORS: Final = re.compile(r"\bemfile\b|too many open files", re.IGNORECASE)
_ANY_PORT: Final = "leave the port out (or make it 0) to have a free one chosen"


class Installation:
    """One broker on this machine, which can be started, ended and restarted."""

    def __init__(self, launcher: Launcher, config: LaunchConfig) -> None:
        """Take a complete configuration and create the directory; nothing runs yet."""
        self.port = config.port
        """The TCP port that the broker listens on; 0 until it is known."""
        self.websocket_port = config.websocket_port
        """The TCP port for WebSockets; 0 until it is known, or if there is none."""
        self.is_emulated = False
        """True if another broker emulates the requested one."""
        self.version = ""
        """The version of the server; empty if unknown."""
        self.control: ControlSocket | None = None
        """The control socket, by which tests control the broker."""
        self._launcher = launcher
        self._config = config
        self._process: GuardedProcess | None = None
        self._ports = Ports(config.host)
        self._kept: list[socket.socket] = []
        self._final_log: str | None = None
        self._temporary = config.directory is None
        #: True if the directory may still be needed after the broker has ended.
        self._is_wanted = False
        #: The announcement that the broker wrote when it was ready, if it supports that.
        self.announcement: dict[str, Any] = {}
        with _explained(config):
            if config.directory is None:
                self.directory = Path(tempfile.mkdtemp(prefix=_directory_prefix(config.name)))
                remove_when_killed(self.directory)
            else:
                self.directory = config.directory.absolute()
                self.directory.mkdir(parents=True, exist_ok=True)
            try:
                self._log = ProcessLog(self.directory)
            except OSError:
                self._discard_directory()
                raise

    @property
    def process(self) -> GuardedProcess:
        """The broker's process; raises BrokerError if there is none."""
        if self._process is None or self._process.status() is not None:
            raise BrokerError(f"{self._config.name} does not run: it has ended, or was ended")
        return self._process

    @property
    def is_running(self) -> bool:
        """True if the broker's process runs."""
        return self._process is not None and self._process.status() is None

    @property
    def is_paused(self) -> bool:
        """True if the broker's process was paused, and not resumed since."""
        return self._process is not None and self._process.is_paused

    @property
    def is_disk_full(self) -> bool:
        """True if writes of the broker's process to files were made to fail."""
        return self._process is not None and self._process.is_disk_full

    @property
    def log(self) -> str:
        """Output of the broker since it was launched."""
        return self._log.text() if self._final_log is None else self._final_log

    def start(self) -> None:
        """Start the broker, on the same port after a restart, and wait until it is ready.

        Raises BrokerStartError if it does not start.
        """
        with _explained(self._config):
            self._start()

    def _start(self) -> None:
        """Start the broker; raises OSError, too."""
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
        """End the broker, which can be started again; harmless if it has ended."""
        if self._process is not None:
            if kill:
                self._process.kill()
            else:
                self._process.stop()
            self._keep_ports()
        if self.control is not None:
            self.control.close()

    def close(self, *, kill: bool = False) -> None:
        """End the broker for good, and release the ports that are not in use."""
        self.end(kill=kill)
        self._ports.close()
        for kept in self._kept:
            kept.close()
        self._kept.clear()

    def keep_directory(self) -> None:
        """Keep the broker's files until this process ends: they may be inspected."""
        if self._temporary:
            remove_at_exit(self.directory)
        self._is_wanted = True

    def remove_directory(self) -> None:
        """Remove the broker's files, unless they are needed elsewhere."""
        self._final_log = self.log
        if not self._is_wanted:
            self._discard_directory()

    def _discard_directory(self) -> None:
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)
            if self.directory.exists():
                # The search for files requires a free descriptor, so this may have failed.
                remove_at_exit(self.directory)

    def _choose_port(self) -> int:
        """Return the port to pass to the broker."""
        if self.port or self._launcher.chooses_port:
            check_port(replace(self._config, port=self.port))
            return self.port
        try:
            return self._ports.take()
        except OSError as error:
            raise _unlistenable(self._config, error) from error

    def _keep_ports(self) -> None:
        """Reserve the ports while the broker does not run.

        Even a client that connects to such a port could take it: the system may assign this very
        port as the client's local port, and the client would be connected to itself.
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
                # Another process took the port; the next start reports that.
                kept.close()
            else:
                self._kept.append(kept)

    def _failed(
        self, process: GuardedProcess, waited_s: float, last: str, *, is_refused: bool
    ) -> BrokerStartError:
        """Return the error that explains why the broker is not ready, after it has stopped."""
        status = process.status()
        process.kill()
        log = process.log()
        if status is not None:
            problem = f"ended after {waited_s:.1f} s with {describe_exit(status)}"
            if status == os.EX_USAGE:
                # The first line of twist; otherwise only the end of its help would be shown.
                said = (line for line in log.splitlines() if line.startswith("Error: "))
                problem += f" ({next(said, 'wrong usage')})"
            remedies = ["run the command by hand, in the directory of its log"]
        else:
            problem = f"was not ready after {waited_s:.1f} s: it {last}"
            remedies = ["give a slow machine more time: LaunchConfig(start_timeout_s=...)"]
            if is_refused:
                # It has answered, and more time would not help.
                login = self._config.login
                remedies = [
                    "see why it refuses CONNECT; it may not take everybody"
                    if login is None
                    else f"see whether this broker can have the login {login!r} with its passcode:"
                    " some take blanks off, or give a character another meaning"
                ]
        if _PORT_TAKEN.search(log):
            remedies.insert(0, "the port is in use: leave it out to have a free one chosen")
        if _NO_DESCRIPTORS.search(log):
            remedies.insert(0, _REMEDIES[errno.EMFILE])
        if self._config.arguments:
            arguments = " ".join(self._config.arguments)
            remedies.append(f"leave out the arguments that were added: {arguments}")
        return BrokerStartError(
            Attempt(
                self._config.name,
                problem,
                process.command,
                self._log.path,
                log,
                is_log_kept=not self._temporary,
                remedies=remedies,
            )
        )


def _directory_prefix(name: str) -> str:
    """Return the prefix of a broker's temporary directory, without colons: they separate paths."""
    return f"stompkit-{name.replace(':', '-')}-"


def check_port(config: LaunchConfig) -> None:
    """Raise BrokerStartError if the configured port, or any port, is unavailable."""
    try:
        is_in_use = is_taken(config.host, config.port)
    except OSError as error:
        raise _unlistenable(config, error) from error
    if is_in_use:
        raise _not_run(config, f"{_where(config)} is in use", _ANY_PORT)


def _unlistenable(config: LaunchConfig, error: OSError) -> BrokerStartError:
    remedy = _REMEDIES.get(error.errno or 0, _ANY_PORT)
    return _not_run(config, f"{_where(config)} can't be listened on ({error.strerror})", remedy)


def _where(config: LaunchConfig) -> str:
    return f"{config.host} port {config.port}" if config.port else config.host


def _not_run(config: LaunchConfig, problem: str, remedy: str) -> BrokerStartError:
    return BrokerStartError(
        Attempt(config.name, f"was not run: {problem}", remedies=[remedy] if remedy else [])
    )


@contextmanager
def _explained(config: LaunchConfig) -> Iterator[None]:
    """Add the remedy to an error of the system that prevents a broker from running."""
    try:
        yield
    except OSError as said:
        error = _lack_of_descriptors() or said
        remedy = _REMEDIES.get(error.errno or 0, "")
        raise _not_run(config, str(error), remedy) from said


def _lack_of_descriptors() -> OSError | None:
    """Return why no file can be opened; ``None`` if one can. The library may hide the reason."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error
    return None


def port_was_taken(error: BrokerStartError) -> bool:
    """Return True if the broker did not start because its port was in use."""
    return _PORT_TAKEN.search(error.attempt.log) is not None


class _GivenUpError(Exception):
    """The broker will not become ready, however long the caller waits."""


class _Wait:
    """Polls a started broker until it is ready."""

    def __init__(
        self,
        launcher: Launcher,
        config: LaunchConfig,
        process: GuardedProcess,
        announce: Path | None,
    ) -> None:
        """Poll as configured, at the port that the file ``announce``, if any, will contain."""
        self.last = "was not asked"
        """The reason why it is not ready, as the end of a sentence."""
        self.websocket_port = 0
        """The announced port for WebSockets, if any."""
        self._host = config.host
        self._port = config.port
        self._timeout_s = config.start_timeout_s or 0.0
        self._process = process
        self._announce = announce
        self._probe = Probe(
            launcher.versions, config.vhost or config.host, config.login, config.passcode
        )
        self._refused_since: float | None = None
        #: Contents of the broker's announcement file, once it is written.
        self.announcement: dict[str, Any] = {}

    @property
    def is_refused(self) -> bool:
        """True if the broker has answered CONNECT with a frame other than CONNECTED."""
        return self._refused_since is not None

    def until_ready(self) -> int | None:
        """Return the port once CONNECT is answered there, ``None`` if that will not happen."""
        deadline = time.monotonic() + self._timeout_s
        try:
            return wait_until(lambda: self._ready_port(deadline), self._timeout_s)
        except _GivenUpError:
            return None

    def _ready_port(self, deadline: float) -> int | None:
        """Try once to connect to the broker."""
        port = self._announced()
        if port is not None:
            remaining_s = max(deadline - time.monotonic(), _LEAST_PROBE_S)
            try:
                self._probe.run(self._host, port, min(_PROBE_S, remaining_s))
            except NotReadyError as reason:
                self._note(reason)
                port = None
        # Check this after an answer, too: another broker could have sent it.
        if self._process.status() is not None:
            raise _GivenUpError
        return port

    def _note(self, reason: NotReadyError) -> None:
        """Record why the broker is not ready, and since when it has been refusing."""
        self.last = str(reason)
        now = time.monotonic()
        if not reason.refused:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since > _REFUSED_S:
            raise _GivenUpError

    def _announced(self) -> int | None:
        """Return the port to connect to, if it is known yet."""
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
