"""``twistd stompkit`` and ``twist stompkit``: options and service."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import cast

from twisted.application.service import Service
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IListeningPort, IReactorCore
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.usage import Options as UsageOptions
from twisted.python.usage import UsageError

from stompkit.frames import AFTER_LOGIN, HeartBeatOffer, Limits, parse_heart_beat
from stompkit.server._config import BrokerConfig
from stompkit.server._protocol import BrokerFactory

__all__ = ["BrokerService", "Options", "makeService"]

#: Nobody is asked for a password yet, so nobody but this machine is let in by default.
DEFAULT_ENDPOINT = "tcp:61613:interface=127.0.0.1"


class Options(UsageOptions):
    """The command line."""

    synopsis = "[options]"
    longdesc = (
        "A STOMP 1.0, 1.1 and 1.2 broker with queues (/queue/NAME), topics (/topic/NAME) and"
        " dead letters (/dlq/NAME), all in memory. Without --endpoint it listens on port 61613 of"
        " the loopback interface only, because it asks nobody for a password. To run it in the"
        " foreground: twist stompkit, or twistd --nodaemon stompkit."
    )
    optParameters = [  # noqa: RUF012 (read by usage.Options, which mutates a copy)
        [
            "announce",
            None,
            None,
            "Write the process id and the addresses listened on to this file, as JSON, once all"
            " of them accept connections; with port 0 in an endpoint it tells which port it is.",
        ],
        ["heart-beat", None, "1000,1000", "What the broker offers: beats it sends, wants (ms)."],
        ["max-connections", None, "10000", "Clients at a time."],
        ["max-body", None, str(64 * 1024 * 1024), "Octets in the body of a frame."],
        ["prefetch", None, "100", "Unacknowledged messages of a subscription."],
    ]

    def __init__(self) -> None:
        """Start without endpoints."""
        super().__init__()
        self["endpoints"] = []

    def opt_endpoint(self, description: str) -> None:
        """Listen on this Twisted endpoint, for example tcp:61613; can be repeated.

        [default: tcp:61613:interface=127.0.0.1]
        """
        self["endpoints"].append(description)

    def postOptions(self) -> None:
        """Check everything, so that a mistake is told before anything listens."""
        if not self["endpoints"]:
            self["endpoints"] = [DEFAULT_ENDPOINT]
        self["config"] = BrokerConfig(
            heart_beat_ms=self._heart_beat(),
            max_connections=self._positive("max-connections"),
            limits=_limits(self._positive("max-body")),
            prefetch=self._positive("prefetch"),
        )

    def _positive(self, name: str) -> int:
        try:
            number = int(self[name])
        except ValueError:
            number = 0
        if number <= 0:
            raise UsageError(f"--{name} takes a positive whole number, not {self[name]!r}")
        return number

    def _heart_beat(self) -> HeartBeatOffer:
        try:
            return parse_heart_beat(self["heart-beat"])
        except ValueError as error:
            raise UsageError(f"--heart-beat: {error}") from None


def _limits(max_body_bytes: int) -> Limits:
    headroom = AFTER_LOGIN.max_frame_bytes - AFTER_LOGIN.max_body_bytes
    return replace(
        AFTER_LOGIN,
        max_body_bytes=max_body_bytes,
        max_frame_bytes=max_body_bytes + headroom,
    )


class BrokerService(Service):
    """Listens on all its endpoints, or ends the process with the reason why it can't."""

    _log = Logger()

    def __init__(
        self, factory: BrokerFactory, descriptions: list[str], announce: Path | None = None
    ) -> None:
        """Keep what to listen on; ``announce`` is the file to write once it does."""
        self.factory = factory
        self._descriptions = descriptions
        self._announce = announce
        self._ports: list[IListeningPort] = []
        self._is_asked_to_listen = False

    def privilegedStartService(self) -> None:
        """Listen, while twistd may still open ports below 1024."""
        super().privilegedStartService()
        self._listen()

    def startService(self) -> None:
        """Listen, unless that has been done."""
        super().startService()
        if not self._is_asked_to_listen:
            self._listen()

    async def _listen_all(self) -> None:
        from twisted.internet import reactor

        for description in self._descriptions:
            try:
                endpoint = serverFromString(reactor, description)
                self._ports.append(await endpoint.listen(self.factory))
            except Exception as error:
                raise SystemExit(f"stompkit: can't listen on {description}: {error}") from error
        for port in self._ports:
            self._log.info("listening on {address}", address=port.getHost())
        if self._announce is not None:
            try:
                _write_whole(self._announce, json.dumps(self.announcement()))
            except OSError as error:
                raise SystemExit(f"stompkit: can't write the announce file: {error}") from error

    def _listen(self) -> None:
        # Listening ends at once for all endpoints but systemd's and plug-ins'; what it raises
        # at once ends the start of twistd with the message and a non-zero status; what it raises
        # later ends the reactor.
        failures: list[BaseException] = []
        self._is_asked_to_listen = True
        waiting = Deferred.fromCoroutine(self._listen_all())

        def failed(failure: Failure) -> None:
            assert failure.value is not None
            failures.append(failure.value)

        waiting.addErrback(failed)
        if failures:
            raise failures[0]
        waiting.addCallback(lambda _: self._end_after(failures))

    def _end_after(self, failures: list[BaseException]) -> None:
        """Stop the reactor if listening has failed after the start."""
        from twisted.internet import reactor

        if failures:
            self._log.critical("{reason}", reason=failures[0])
            cast("IReactorCore", reactor).stop()

    def announcement(self) -> dict[str, object]:
        """What the announce file says: process id, and host and port or path of each endpoint."""
        hosts = [port.getHost() for port in self._ports]
        return {
            "pid": os.getpid(),
            "endpoints": [
                {"host": host.host, "port": host.port}
                if isinstance(host, IPv4Address | IPv6Address)
                else {"path": os.fsdecode(getattr(host, "name", b"") or b"")}
                for host in hosts
            ],
        }

    async def _stop_all(self) -> None:
        for port in self._ports:
            stopped = port.stopListening()
            if stopped is not None:
                await stopped
        self._ports = []

    def stopService(self) -> Deferred[None]:
        """Listen no more."""
        super().stopService()
        self._is_asked_to_listen = False
        if self._announce is not None:
            self._announce.unlink(missing_ok=True)
        return Deferred.fromCoroutine(self._stop_all())


def _write_whole(path: Path, text: str) -> None:
    """Write a file so that nobody ever reads half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)


def makeService(options: Options) -> BrokerService:
    """Make the service that twistd runs."""
    announce = Path(options["announce"]) if options["announce"] else None
    return BrokerService(BrokerFactory(options["config"]), options["endpoints"], announce)
