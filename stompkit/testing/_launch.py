"""Launch a broker in a process of its own, and know when it is ready."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from stompkit.testing._brokers import LAUNCHERS, Launcher
from stompkit.testing._config import LaunchConfig
from stompkit.testing._errors import (
    Attempt,
    BrokerError,
    BrokerMissing,
    BrokerStartError,
    describe_exit,
)
from stompkit.testing._polling import wait_until
from stompkit.testing._ports import Ports, is_taken
from stompkit.testing._probe import NotReady, Probe
from stompkit.testing._running import LOG_NAME, GuardedProcess, RunningBroker

__all__ = ["RunningBroker", "given", "launch"]

#: How often to take another port when somebody else was faster.
_PORT_ATTEMPTS: Final = 3
#: How long one CONNECT may go unanswered before another is tried, in seconds.
_PROBE_S: Final = 5.0
#: How long the last CONNECT may take, in seconds, when the time is nearly over.
_LEAST_PROBE_S: Final = 0.1
#: How long to believe that a broker that refuses CONNECT is still starting, in seconds.
_REFUSED_S: Final = 3.0
_PORT_TAKEN: Final = re.compile(r"eaddrinuse|address already in use|BindException", re.IGNORECASE)


def launch(config: LaunchConfig) -> RunningBroker:
    """Start a broker and return when it answers CONNECT.

    Raises BrokerMissing where the server software is not installed, BrokerStartError where it
    does not start, and BrokerError for an unknown name or a setting that the broker lacks.
    """
    launcher = LAUNCHERS.get(config.name)
    if launcher is None:
        known = ", ".join(LAUNCHERS)
        raise BrokerError(f"no broker is called {config.name!r}; known: {known}")
    return launch_with(launcher, config)


def launch_with(launcher: Launcher, config: LaunchConfig) -> RunningBroker:
    """Start a broker by the given launcher, whatever the configuration's ``name``."""
    missing = launcher.missing()
    if missing is not None:
        raise BrokerMissing(config.name, missing)
    config = _complete(launcher, config)
    attempts = 1 if config.port or launcher.chooses_port else _PORT_ATTEMPTS
    while True:
        attempts -= 1
        launching = _Launching(launcher, config)
        try:
            return launching.run()
        except BrokerStartError as error:
            launching.end()
            if not attempts or not _PORT_TAKEN.search(error.attempt.log):
                raise
            launching.remove_directory()
        except BaseException:
            launching.end()
            launching.remove_directory()
            raise


def given(
    host: str,
    port: int,
    *,
    name: str = "given",
    login: str | None = None,
    passcode: str | None = None,
    vhost: str | None = None,
) -> RunningBroker:
    """Describe a broker that is already running; nothing is started, asked or stopped.

    For the name of a known broker, its usual login, passcode and virtual host are taken where
    none are given; an empty login stands for none.
    """
    config = LaunchConfig(
        name=name, host=host, port=port, login=login, passcode=passcode, vhost=vhost
    )
    return RunningBroker(_complete(LAUNCHERS.get(name), config), port)


def _complete(launcher: Launcher | None, config: LaunchConfig) -> LaunchConfig:
    """Put what the broker, if it is a known one, takes by default where nothing is said."""
    if launcher is None:
        return replace(config, login=config.login or None)
    login, passcode = config.login, config.passcode
    if login is None:
        login = launcher.login
        passcode = launcher.passcode if passcode is None else passcode
    return replace(
        config,
        login=login or None,
        passcode=passcode if login else None,
        vhost=launcher.vhost(config.host) if config.vhost is None else config.vhost,
        start_timeout_s=(
            launcher.start_timeout_s if config.start_timeout_s is None else config.start_timeout_s
        ),
    )


class _GivenUpError(Exception):
    """The broker won't become ready however long one waits."""


class _Launching:
    """One attempt to start a broker."""

    def __init__(self, launcher: Launcher, config: LaunchConfig) -> None:
        """Take a complete configuration; nothing is done yet."""
        self._launcher = launcher
        self._config = config
        self._timeout_s = config.start_timeout_s or 0.0
        self._ports = Ports(config.host)
        self._process: GuardedProcess | None = None
        self._announce: Path | None = None
        self._last = "was not asked"
        self._refused_since: float | None = None
        self._temporary = config.directory is None
        if config.directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix=f"stompkit-{config.name}-"))
        else:
            self._directory = config.directory.absolute()
            self._directory.mkdir(parents=True, exist_ok=True)

    def run(self) -> RunningBroker:
        """Start the broker and wait until it is ready; raises BrokerStartError."""
        config = replace(self._config, port=self._choose_port())
        prepared = self._launcher.prepare(config, self._directory, self._ports.take)
        self._announce = prepared.announce
        started = time.monotonic()
        self._process = GuardedProcess(
            prepared.command,
            prepared.environment,
            self._directory,
            config.stop_timeout_s,
            temporary=self._temporary,
        )
        port = self._wait_until_ready(self._process, config)
        if port is None:
            raise self._failed(self._process, time.monotonic() - started)
        return RunningBroker(
            config,
            port,
            process=self._process,
            ports=self._ports,
            directory=self._directory,
            temporary=self._temporary,
        )

    def end(self) -> None:
        """Stop what was started."""
        if self._process is not None:
            self._process.kill()
        self._ports.close()

    def remove_directory(self) -> None:
        """Forget the attempt's files, if nobody else wants them."""
        if self._temporary:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _choose_port(self) -> int:
        """The port that the broker shall be told."""
        config = self._config
        try:
            if not config.port:
                return 0 if self._launcher.chooses_port else self._ports.take()
            problem = "is in use" if is_taken(config.host, config.port) else None
        except OSError as error:
            problem = f"can't be listened on ({error.strerror})"
        if problem is None:
            return config.port
        remedies = ["leave the port out (or make it 0) to have a free one chosen"]
        where = f"{config.host} port {config.port}"
        self.remove_directory()
        raise BrokerStartError(
            Attempt(config.name, f"was not run: {where} {problem}", remedies=remedies)
        )

    def _wait_until_ready(self, process: GuardedProcess, config: LaunchConfig) -> int | None:
        """Return the port once CONNECT is answered there, ``None`` when that is not to be."""
        probe = Probe(
            self._launcher.versions, config.vhost or config.host, config.login, config.passcode
        )
        deadline = time.monotonic() + self._timeout_s

        def ready_port() -> int | None:
            """Ask the broker once."""
            port = self._announced(config.port)
            if port is not None:
                remaining_s = max(deadline - time.monotonic(), _LEAST_PROBE_S)
                try:
                    probe.run(config.host, port, min(_PROBE_S, remaining_s))
                except NotReady as reason:
                    self._note(reason)
                    port = None
            # Also after an answer: it could have been somebody else's broker that gave it.
            if process.status() is not None:
                raise _GivenUpError
            return port

        try:
            return wait_until(ready_port, self._timeout_s)
        except _GivenUpError:
            return None

    def _note(self, reason: NotReady) -> None:
        """Remember why the broker is not ready, and for how long it has been refusing."""
        self._last = str(reason)
        now = time.monotonic()
        if not reason.refused:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since > _REFUSED_S:
            raise _GivenUpError

    def _announced(self, port: int) -> int | None:
        """The port to ask at, if it is known yet."""
        if self._announce is None:
            return port
        try:
            document = json.loads(self._announce.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self._last = "did not tell its port"
            return None
        announced: int = document["endpoints"][0]["port"]
        return announced

    def _failed(self, process: GuardedProcess, waited_s: float) -> BrokerStartError:
        """Say why the broker is not ready, once it has been stopped and its log is complete."""
        status = process.status()
        process.kill()
        log_path = self._directory / LOG_NAME
        log = process.log()
        if status is not None:
            problem = f"ended after {waited_s:.1f} s with {describe_exit(status)}"
            remedies = ["run the command by hand, in the directory of its log"]
        else:
            problem = f"was not ready after {waited_s:.1f} s: it {self._last}"
            remedies = ["give a slow machine more time: LaunchConfig(start_timeout_s=...)"]
        if _PORT_TAKEN.search(log):
            remedies.insert(0, "the port is in use: leave it out to have a free one chosen")
        if self._config.arguments:
            arguments = " ".join(self._config.arguments)
            remedies.append(f"leave out the arguments that were added: {arguments}")
        return BrokerStartError(
            Attempt(self._config.name, problem, process.command, log_path, log, remedies)
        )
