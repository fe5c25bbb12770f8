"""A launched broker: its files, ports and process, and its restart."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from stompkit._common.clock import monotonic
from stompkit._common.files import make_directory
from stompkit.testing.launching.brokers import Launcher
from stompkit.testing.launching.config import LaunchConfig
from stompkit.testing.launching.control import ControlSocket
from stompkit.testing.launching.errors import BrokerError
from stompkit.testing.launching.failures import check_port, explained, not_ready, unlistenable
from stompkit.testing.launching.occupation import Occupation
from stompkit.testing.launching.ports import Ports
from stompkit.testing.launching.processes.forking import prepare_fork
from stompkit.testing.launching.processes.leftovers import make_folder, remove, remove_at_exit
from stompkit.testing.launching.processes.process import GuardedProcess, ProcessLog
from stompkit.testing.launching.readiness import Readiness

__all__ = ["Installation"]


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
        #: The use of a directory that others may have named, too.
        self._occupation: Occupation | None = None
        #: True if the directory may still be needed after the broker has ended.
        self._is_wanted = False
        #: The announcement that the broker wrote when it was ready, if it supports that.
        self.announcement: dict[str, Any] = {}
        with explained(config):
            if config.directory is None:
                self.directory = make_folder(_directory_prefix(config.name))
            else:
                self.directory = Path(config.directory).absolute()
                make_directory(self.directory)
                self._occupation = Occupation(self.directory, lambda: self.is_running)
                self._occupation.begin()
            try:
                self._log = ProcessLog(self.directory)
            except OSError:
                self._leave()
                self._discard_directory()
                raise

    @property
    def process(self) -> GuardedProcess:
        """The broker's process; raises BrokerError if there is none."""
        if self._process is None or self._process.status() is not None:
            raise BrokerError(
                f"{self._config.name} does not run, since it has ended or was ended: restart()"
                " starts it"
            )
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

    def start(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Start the broker, on the same port after a restart, and wait until it is ready.

        ``meanwhile`` is work to do while another process imports the broker. Raises
        BrokerStartError if the broker does not start.
        """
        with explained(self._config):
            if self._occupation is not None:
                self._occupation.begin()
            try:
                self._start(meanwhile)
            finally:
                if not self.is_running:
                    self._leave()

    def _start(self, meanwhile: Callable[[], None] | None) -> None:
        """Start the broker; raises OSError, too."""
        websocket_port = self.websocket_port
        config = replace(self._config, port=self._choose_port(), websocket_port=websocket_port)
        prepared = self._launcher.prepare(config, self.directory, self._ports.take)
        if prepared.note:
            self._log.write(prepared.note)
        if meanwhile is not None:
            prepare_fork(prepared.command, prepared.environment)
            meanwhile()
        started = monotonic()
        self._process = process = GuardedProcess(
            prepared.command,
            prepared.environment,
            self.directory,
            config.stop_timeout_s,
            log=self._log,
            working_directory=prepared.working_directory,
        )
        wait = Readiness(self._launcher, config, process, prepared)
        port = wait.until_ready()
        if port is None:
            waited_s = monotonic() - started
            raise not_ready(self._config, process, self._log.path, waited_s, wait)
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
        self._leave()

    def _leave(self) -> None:
        """Give the directory free for other brokers."""
        if self._occupation is not None:
            self._occupation.end()

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
            remove(self.directory)
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
            raise unlistenable(self._config, error) from error

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


def _directory_prefix(name: str) -> str:
    """Return the prefix of a broker's temporary directory, without colons: they separate paths."""
    return f"stompkit-{name.replace(':', '-')}-"
