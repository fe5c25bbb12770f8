"""The Spring application as a process: built by Maven once, then kept in a cache folder.

One process can run several instances of the application, each with a web server and a relay, and
several of Spring's STOMP clients. It reads calls from its standard input and answers each with one
line; both are JSON. A call is an object with ``call`` and the ``name`` of an instance or client:

================================  =============================================================
``start``, with ``settings``      start an instance; the answer is the port of its web server
``stop``                          stop it
``send``                          convertAndSend of a ``text`` to a ``destination``
``send-to-user``                  convertAndSendToUser, to a ``user``
``users``                         the registry of users: name and number of sessions
``availability``                  the BrokerAvailabilityEvents so far
``connected``, ``disconnected``   the users of SessionConnectedEvent and SessionDisconnectEvent
``connections``                   the number of the relay's connections to the broker
``client-connect``                connect a client, to ``host`` and ``port``, or to a ``url``
``client-subscribe``              SUBSCRIBE, with ``headers``
``client-send``                   SEND, with ``headers`` and ``body`` (base64)
``client-acknowledge``            ACK or NACK, with ``id`` and ``consumed``, and its receipt
``client-receive``                wait for a message
``client-end``                    wait for ERROR or the loss of the connection
``client-is-connected``           whether the session is open
``client-close``                  DISCONNECT, and end
================================  =============================================================

An answer has ``result`` or ``error``.
"""

from __future__ import annotations

import base64
import json
import queue
import subprocess
import threading
from pathlib import Path
from typing import IO, Any, Final

from stompkit.frames import Frame
from stompkit.testing import RunningBroker
from stompkit.testing.launching.polling import wait_until
from tests import maven

__all__ = ["DEADLINE_S", "Instance", "SpringClient", "SpringProcess", "build"]

#: Timeout of one answer, in seconds: it may include the start of a Java virtual machine.
DEADLINE_S: Final = 120.0
_SOURCES: Final = Path(__file__).parent
#: Lines of the application's log that an error shows.
_LOG_LINES: Final = 30


class SpringError(Exception):
    """The application has answered a call with an error."""


def build() -> Path:
    """Return the application's archive; raises BuildMissing."""
    return maven.build(_SOURCES, "application.jar")


class SpringProcess:
    """A Java virtual machine with the application's driver."""

    def __init__(self, archive: Path, log: Path) -> None:
        """Start it, without an instance of the application."""
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                # Optimised for a fast start.
                ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar", str(archive)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def log(self) -> str:
        """Return the last lines of its log."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])

    def call(self, call: str, name: str, **arguments: object) -> Any:
        """Make a call and return the result; raise SpringError."""
        line = json.dumps({"call": call, "name": name, **arguments}).encode()
        stdin = self._pipe(self._process.stdin)
        stdin.write(line + b"\n")
        stdin.flush()
        answered = self._lines.get(timeout=DEADLINE_S)
        assert answered, f"the application has ended:\n{self.log}"
        answer = json.loads(answered)
        if "error" in answer:
            raise SpringError(answer["error"])
        return answer["result"]

    def start(self, name: str, *brokers: RunningBroker, **settings: object) -> Instance:
        """Start an instance whose relay tries these brokers in turn.

        ``settings`` are those of ``Relay.java``, with ``_`` for ``-``.
        """
        addresses = ",".join(f"{each.host}:{each.port}" for each in brokers)
        relay = {"addresses": addresses, **settings}
        options = {f"relay.{key.replace('_', '-')}": value for key, value in relay.items()}
        return Instance(self, name, self.call("start", name, settings=options))

    def stop(self) -> None:
        """End the process and all instances in it."""
        self._pipe(self._process.stdin).close()
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the process, as ``kill -9`` does."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._pipe(self._process.stdin).close()
        self._pipe(self._process.stdout).close()

    def _read(self) -> None:
        """Read lines in a separate thread; an empty one is the end."""
        for line in self._pipe(self._process.stdout):
            self._lines.put(line)
        self._lines.put(b"")

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe


class Instance:
    """An instance of the application."""

    def __init__(self, process: SpringProcess, name: str, port: int) -> None:
        """Describe one that listens on ``port``; SpringProcess starts it."""
        self._process = process
        self._name = name
        self.port = port

    def send(self, destination: str, text: str) -> None:
        """Send by ``SimpMessagingTemplate.convertAndSend``."""
        self._call("send", destination=destination, text=text)

    def send_to_user(self, user: str, destination: str, text: str) -> None:
        """Send by ``SimpMessagingTemplate.convertAndSendToUser``."""
        self._call("send-to-user", user=user, destination=destination, text=text)

    @property
    def users(self) -> dict[str, int]:
        """The registry of users: the number of sessions by name."""
        users: dict[str, int] = self._call("users")
        return users

    @property
    def availability(self) -> list[bool]:
        """All BrokerAvailabilityEvents so far."""
        events: list[bool] = self._call("availability")
        return events

    @property
    def connected(self) -> list[str]:
        """The users of all SessionConnectedEvents so far."""
        users: list[str] = self._call("connected")
        return users

    @property
    def disconnected(self) -> list[str]:
        """The users of all SessionDisconnectEvents so far."""
        users: list[str] = self._call("disconnected")
        return users

    @property
    def connections(self) -> int:
        """The number of the relay's connections to the broker."""
        return int(self._call("connections"))

    def wait_for_broker(self, *, is_available: bool = True) -> None:
        """Wait for a BrokerAvailabilityEvent with this value."""
        found = wait_until(lambda: self.availability[-1:] == [is_available], DEADLINE_S)
        assert found, f"{self.availability}\n{self._process.log}"

    def stop(self) -> None:
        """Stop it."""
        self._call("stop")

    def _call(self, call: str, **arguments: object) -> Any:
        return self._process.call(call, self._name, **arguments)


class SpringClient:
    """Spring's STOMP client, connected to the broker."""

    def __init__(
        self,
        process: SpringProcess,
        name: str,
        *,
        broker: RunningBroker | None = None,
        url: str = "",
        limit: int = 0,
        heart_beat: tuple[int, int] = (0, 0),
        **headers: str,
    ) -> None:
        """Connect to a broker by TCP, or to the URL of its WebSocket.

        ``limit`` is the maximum size of a WebSocket message, in bytes; 0 leaves the container's
        default, 8 KiB. Raises SpringError.
        """
        self._process = process
        self._name = name
        to: dict[str, object] = {"url": url, "limit": limit}
        if broker is not None:
            to = {"host": broker.host, "port": broker.port}
        beats = {"heart-beat": list(heart_beat)}
        process.call("client-connect", name, headers=headers, **to, **beats)

    def subscribe(self, destination: str, **headers: str) -> None:
        """Subscribe, and wait for the receipt."""
        sent = _named(destination=destination, receipt="subscribed", **headers)
        self._call("client-subscribe", headers=sent)

    def send(self, destination: str, body: bytes, **headers: str) -> None:
        """Send, and wait for the receipt if the headers ask for one."""
        encoded = base64.b64encode(body).decode("ascii")
        sent = _named(destination=destination, **headers)
        self._call("client-send", headers=sent, body=encoded)

    def acknowledge(self, message: Frame, *, is_consumed: bool = True) -> None:
        """Send ACK or NACK, and wait for the receipt."""
        self._call("client-acknowledge", id=message.headers["ack"], consumed=is_consumed)

    def receive(self) -> Frame:
        """Wait for a message."""
        message = self._call("client-receive")
        assert message is not None, self._process.log
        return Frame("MESSAGE", message["headers"], base64.b64decode(message["body"]))

    def end(self) -> dict[str, Any]:
        """Wait for the end; return headers of ERROR, ``lost``, or ``exception`` with its text."""
        end = self._call("client-end")
        assert end is not None, self._process.log
        found: dict[str, Any] = end.get("headers", end)
        return found

    @property
    def is_connected(self) -> bool:
        """True if the session is open."""
        return bool(self._call("client-is-connected"))

    def close(self) -> None:
        """Disconnect."""
        self._call("client-close")

    def _call(self, call: str, **arguments: object) -> Any:
        return self._process.call(call, self._name, **arguments)


def _named(**headers: str) -> dict[str, str]:
    """Return headers with hyphens in their names."""
    return {name.replace("_", "-"): value for name, value in headers.items()}
