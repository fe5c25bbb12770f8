"""The broker under test, as the cases see it."""

from __future__ import annotations

import itertools
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from stompkit.conformance.peer import Peer, Recorder, describe
from stompkit.conformance.verdict import Ending, Failed, Unsupported
from stompkit.frames import VERSIONS, Version

__all__ = ["Address", "Capabilities", "Target", "Unreachable", "probe"]


@dataclass(frozen=True, slots=True)
class Address:
    """Where the target is, how to log in, and how patient to be."""

    host: str
    port: int
    login: str | None = None
    passcode: str | None = field(default=None, repr=False)
    #: Virtual host for CONNECT's ``host`` header; the host's name if not given.
    vhost: str | None = None
    #: How the target names queues and topics; ``{}`` stands for a plain word.
    queue_template: str = "/queue/{}"
    topic_template: str = "/topic/{}"
    #: Seconds to wait for an answer.
    timeout_s: float = 3.0
    #: Seconds to wait before saying that nothing came.
    quiet_s: float = 0.5
    #: Seconds that one case may take.
    case_timeout_s: float = 60.0


class Unreachable(Exception):
    """Nothing that speaks STOMP answers at the address."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the target says of itself."""

    versions: tuple[Version, ...]
    #: The ``server`` header of CONNECTED, if any.
    server: str


class Target:
    """The target during one case: opens connections and names destinations."""

    def __init__(
        self, address: Address, capabilities: Capabilities, version: Version, recorder: Recorder
    ) -> None:
        """Begin a case on ``version``; its deadline starts now."""
        self.address = address
        self.version = version
        self.recorder = recorder
        self.quiet_s = address.quiet_s
        self.timeout_s = address.timeout_s
        #: What was seen, for the reader of the report.
        self.notes: list[str] = []
        #: Recommendations (SHOULD) that the target was seen to break.
        self.lapses: list[str] = []
        self.peers: list[Peer] = []
        self._capabilities = capabilities
        self._deadline = time.monotonic() + address.case_timeout_s
        # Destinations that no other case, run or client uses.
        self._names = (f"stompkit-{secrets.token_hex(5)}-{n}" for n in itertools.count(1))

    def open(self) -> Peer:
        """Open a TCP connection; nothing has been sent on it."""
        peer = _dial(self.address, len(self.peers) + 1, self.recorder, self._deadline)
        peer.version = self.version
        self.peers.append(peer)
        return peer

    def connect(self, headers: Mapping[str, str] | None = None) -> Peer:
        """Open a session on the version under test; ``headers`` are added to CONNECT's."""
        if self.version not in self._capabilities.versions:
            raise Unsupported(f"the target does not speak STOMP {self.version}")
        peer = self.open()
        peer.send("CONNECT", {**self.connect_headers(), **(headers or {})})
        connected = peer.expect("CONNECTED")
        version = connected.headers.get("version", "1.0")
        if version != self.version:
            raise Failed(f"offered {self.version}, the target chose {version}")
        peer.switch(self.version)
        return peer

    def connect_headers(self, accept_version: str | None = None) -> dict[str, str]:
        """CONNECT's headers for the version under test, with login where there is one."""
        return connect_headers(self.address, accept_version or self.version)

    def queue(self) -> str:
        """The name of a queue that nobody has used."""
        return self.address.queue_template.format(next(self._names))

    def topic(self) -> str:
        """The name of a topic that nobody has used."""
        return self.address.topic_template.format(next(self._names))

    def subscribe(
        self, peer: Peer, destination: str, *, ack: str | None = None, id: str = "s1"
    ) -> None:
        """Subscribe and wait for the RECEIPT."""
        headers = {"destination": destination, "id": id}
        if ack is not None:
            headers["ack"] = ack
        peer.call("SUBSCRIBE", headers)

    def leftovers(self, queue: str, number: int = 0) -> list[bytes]:
        """Bodies of the messages that a new subscriber gets from a queue.

        Waits for ``number`` of them as long as for any answer, and then whether more come.
        """
        peer = self.connect()
        self.subscribe(peer, queue, id="leftovers")
        frames = []
        for _ in range(number):
            try:
                frames.append(peer.expect("MESSAGE"))
            except Failed:
                break
        frames += [each for each in peer.collect(self.quiet_s) if each.command == "MESSAGE"]
        peer.close()
        return [frame.body for frame in frames]

    def note(self, text: str) -> None:
        """Record something for the report."""
        self.notes.append(text)

    def should(self, holds: bool, text: str) -> None:  # noqa: FBT001 (reads like assert)
        """Record a broken recommendation where ``holds`` is false; ``text`` says what was seen."""
        if not holds:
            self.lapses.append(text)

    def finish(self) -> Ending:
        """Close everything; gives the worst ending of a connection."""
        for peer in self.peers:
            peer.close()
        return max((peer.ending for peer in self.peers), key=lambda e: e.rank, default=Ending.CLEAN)


def connect_headers(address: Address, accept_version: str) -> dict[str, str]:
    """CONNECT's headers; ``1.0`` alone is said by leaving accept-version out."""
    headers = {}
    if accept_version != "1.0":
        headers["accept-version"] = accept_version
    headers["host"] = address.host if address.vhost is None else address.vhost
    if address.login is not None:
        headers["login"] = address.login
    if address.passcode is not None:
        headers["passcode"] = address.passcode
    return headers


def _dial(address: Address, number: int, recorder: Recorder, deadline: float) -> Peer:
    left = max(0.001, min(address.timeout_s, deadline - time.monotonic()))
    try:
        connection = socket.create_connection((address.host, address.port), timeout=left)
    except OSError as error:
        recorder.say(number, f"no connection: {error}")
        raise Failed(f"the target does not take a connection: {error}") from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    recorder.say(number, "connected")
    return Peer(connection, number, recorder, timeout_s=address.timeout_s, deadline=deadline)


def is_alive(address: Address, version: Version) -> bool:
    """Whether a CONNECT on a new connection is answered by CONNECTED."""
    recorder = Recorder()
    try:
        peer = _dial(address, 1, recorder, time.monotonic() + address.case_timeout_s)
    except Failed:
        return False
    try:
        peer.send("CONNECT", connect_headers(address, version))
        peer.expect("CONNECTED")
    except Failed:
        return False
    finally:
        peer.close()
    return True


def probe(address: Address) -> Capabilities:
    """Find out which versions the target speaks; raises :class:`Unreachable`."""
    found: list[Version] = []
    server = ""
    reason = ""
    for version in VERSIONS:
        recorder = Recorder()
        try:
            peer = _dial(address, 1, recorder, time.monotonic() + address.case_timeout_s)
        except Failed as error:
            _unreachable(address, str(error))
        try:
            peer.send("CONNECT", connect_headers(address, version))
            connected = peer.expect("CONNECTED")
        except Failed as error:
            reason = _diagnosis(peer, str(error))
        else:
            server = connected.headers.get("server", server)
            if connected.headers.get("version", "1.0") == version:
                found.append(version)
        finally:
            peer.close()
        if not found and not reason.startswith("it answers CONNECT with ERROR"):
            break
    if not found:
        _unreachable(address, reason)
    return Capabilities(tuple(found), server)


def _diagnosis(peer: Peer, reason: str) -> str:
    """Say what a target did with CONNECT instead of CONNECTED."""
    for frame in peer.frames:
        if frame.command == "ERROR":
            return f"it answers CONNECT with {describe(frame)}"
    return reason


def _unreachable(address: Address, reason: str) -> NoReturn:
    raise Unreachable(f"no STOMP server at {address.host}:{address.port}: {reason}")
