"""Waiting until a started broker accepts all that it has been configured to accept."""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Final

from stompkit._common.clock import monotonic
from stompkit.testing.launching.brokers import Access, Launcher, Prepared
from stompkit.testing.launching.config import LaunchConfig
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.launching.probe import NotReadyError, Probe
from stompkit.testing.launching.processes.process import GuardedProcess

__all__ = ["Readiness"]

#: Timeout in seconds of one CONNECT; then another one is tried.
_PROBE_S: Final = 5.0
#: Minimum timeout in seconds of the last CONNECT before the deadline.
_LEAST_PROBE_S: Final = 0.1
#: Minimum time in seconds for which a broker that refuses CONNECT counts as still starting; if it
#: took longer until its first answer, it gets that time again.
_REFUSED_S: Final = 3.0


class _GivenUpError(Exception):
    """The broker will not become ready, however long the caller waits."""


class Readiness:
    """Polls a started broker until it is ready."""

    def __init__(
        self,
        launcher: Launcher,
        config: LaunchConfig,
        process: GuardedProcess,
        prepared: Prepared,
    ) -> None:
        """Poll as configured, at the port that the broker's announcement, if any, will contain."""
        self.last = "was not asked"
        """The reason why it is not ready, as the end of a sentence."""
        self.websocket_port = 0
        """The announced port for WebSockets, if any."""
        self._host = config.host
        self._port = config.port
        self._timeout_s = config.start_timeout_s or 0.0
        self._process = process
        self._announce = prepared.announce
        self._started_text = prepared.started_text
        own = Access(config.vhost or config.host, config.login, config.passcode)
        #: Those not accepted yet: a broker may accept one user or virtual host before another.
        self._accesses = deque(dict.fromkeys((own, *prepared.accesses)))
        self._versions = launcher.versions
        self._started = monotonic()
        self._refused_since: float | None = None
        #: Contents of the broker's announcement file, once it is written.
        self.announcement: dict[str, Any] = {}

    @property
    def is_refused(self) -> bool:
        """True if the broker has answered CONNECT with a frame other than CONNECTED."""
        return self._refused_since is not None

    def until_ready(self) -> int | None:
        """Return the port once CONNECT is answered there, ``None`` if that will not happen."""
        deadline = monotonic() + self._timeout_s
        try:
            return wait_until(lambda: self._ready_port(deadline), self._timeout_s)
        except _GivenUpError:
            return None

    def _ready_port(self, deadline: float) -> int | None:
        """Try once to connect to the broker."""
        port = self._announced()
        if port is not None:
            try:
                while self._accesses:
                    remaining_s = max(deadline - monotonic(), _LEAST_PROBE_S)
                    probe = Probe(self._versions, self._accesses[0])
                    probe.run(self._host, port, min(_PROBE_S, remaining_s))
                    self._accesses.popleft()
            except NotReadyError as reason:
                self._note(reason)
                port = None
        if port is not None and not self._has_started():
            self.last = "has not completed its start, though it answers CONNECT"
            port = None
        # Check this after an answer, too: another broker could have sent it.
        if self._process.status() is not None:
            raise _GivenUpError
        return port

    def _note(self, reason: NotReadyError) -> None:
        """Record why the broker is not ready, and since when it has been refusing."""
        self.last = str(reason)
        now = monotonic()
        if not reason.refused:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        elif now - self._refused_since > max(_REFUSED_S, self._refused_since - self._started):
            raise _GivenUpError

    def _has_started(self) -> bool:
        """Return True if the broker has logged that its start is complete."""
        return not self._started_text or self._process.has_logged(self._started_text)

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
