"""Replay of the clients of a transcript against a broker."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from typing import Final

from stompkit._common.clock import monotonic
from stompkit.frames import Frame, RemoteProtocolError, Version
from stompkit.testing.frames.events import Closed, Event, Octets, Opened, SeenFrame
from stompkit.testing.frames.matching import Direction
from stompkit.testing.frames.report import timed_lines
from stompkit.testing.frames.words import MASK, Secrets, is_secret, shown_frame
from stompkit.testing.transcripts.replay_peer import ReplayPeer
from stompkit.testing.transcripts.replaying import (
    ReplayFailedError,
    check_replayable,
    versions_in,
    wire_octets,
)
from stompkit.testing.transcripts.transcript import Transcript

__all__ = ["play_client"]

_HANDSHAKE: Final = frozenset({"CONNECT", "STOMP"})
_SHOWN_LAST: Final = 10


def play_client(
    transcript: Transcript,
    host: str,
    port: int,
    *,
    login: str | None = None,
    passcode: str | None = None,
    vhost: str | None = None,
    timeout_s: float = 5.0,
    receipts: bool = True,
) -> Transcript:
    """Replay the clients of a transcript against a broker, and return the new events.

    The frames of the clients are sent on the same number of connections and in the same order.
    Before a frame that was sent after a frame of the broker, the replay waits for that frame. It
    recognises RECEIPT by its ``receipt-id``, MESSAGE by its subscription (by its destination if the
    broker had named the subscription), and ERROR and CONNECTED by the command. Ids that the broker
    chose (of messages, acknowledgements and the session, and destinations for replies) are replaced
    by those that it chooses now.

    The result has the frames of the broker at the same positions as in ``transcript``; additional
    ones come at the end of each connection. The comparison of both, normalised, therefore shows the
    differences.

    ``login``, ``passcode`` and ``vhost`` replace those of CONNECT; a masked passcode without a
    replacement is left out. No heart-beats are negotiated. If the transcript continues with another
    connection, a frame without ``receipt`` gets one, so that the replay knows when the broker has
    processed it; ``receipts=False`` is for brokers without RECEIPT.

    Raises ReplayFailedError if a frame does not come within ``timeout_s`` seconds. Raises
    ValueError for an incomplete transcript, or one in which the broker sent invalid frames. Raises
    OSError if no broker listens, and LocalProtocolError for a frame that STOMP cannot encode.
    """
    check_replayable(transcript, "sent")
    connect = {"login": login, "passcode": passcode, "host": vhost}
    player = _Player(transcript.events, (host, port), connect, timeout_s, receipts=receipts)
    with contextlib.closing(player):
        player.play()
    return Transcript(tuple(player.happened))


class _Player:
    """The clients of a transcript."""

    def __init__(
        self,
        events: Sequence[Event],
        address: tuple[str, int],
        connect: dict[str, str | None],
        timeout_s: float,
        *,
        receipts: bool,
    ) -> None:
        self.happened: list[Event] = []
        self._events = events
        self._versions = versions_in(events)
        #: Connections on which ERROR is a valid answer.
        self._refused = {
            event.connection
            for event in events
            if isinstance(event, SeenFrame) and event.command == "ERROR"
        }
        self._address = address
        self._connect = {name: value for name, value in connect.items() if value is not None}
        self._timeout_s = timeout_s
        self._confirmed = _turns(events) if receipts else frozenset[int]()
        secret = connect["passcode"]
        self._secrets = Secrets([] if secret is None else [secret])
        self._connections: dict[int, _Connection] = {}
        self._began = monotonic()

    def play(self) -> None:
        """Replay all events, and end all connections."""
        for index, event in enumerate(self._events):
            match event:
                case Opened():
                    self._connection(event.connection)
                case Closed():
                    self._end(event.connection, event)
                case Octets():
                    self._write(self._connection(event.connection), event.octets, event)
                case SeenFrame(direction="sent"):
                    self._wait_for(self._connection(event.connection), event)
                case SeenFrame():
                    self._send(event, index)
        for number in list(self._connections):
            self._end(number, None)

    def close(self) -> None:
        """Close the connections that are still open."""
        for connection in self._connections.values():
            connection.socket.close()

    def _connection(self, number: int) -> _Connection:
        if number not in self._connections:
            version = self._versions.get(number)
            opened = _Connection(number, self._address, self._timeout_s, version)
            self._connections[number] = opened
            self.happened.append(Opened(number, self._now()))
        return self._connections[number]

    def _now(self) -> float:
        return round(monotonic() - self._began, 6)

    def _note(self, direction: Direction, connection: _Connection, frame: Frame) -> None:
        """Add a frame to the new events."""
        masked = self._secrets.frame(frame)
        self.happened.append(SeenFrame(direction, connection.number, self._now(), masked))

    # Sending.

    def _send(self, event: SeenFrame, index: int) -> None:
        connection = self._connection(event.connection)
        frame = connection.ids.translated(event.frame)
        if frame.command in _HANDSHAKE:
            frame.headers = self._handshake(frame.headers)
        elif frame.command == "SUBSCRIBE":
            connection.chosen.add(event.frame.headers.get("id", ""))
        self._note("received", connection, frame)
        receipt = frame.headers.get("receipt")
        if index in self._confirmed and receipt is None:
            receipt = frame.headers["receipt"] = f"stompkit-replay-{index}"
        self._write(connection, wire_octets(frame, connection.version), event)
        if index in self._confirmed and receipt is not None:
            self._confirm(connection, receipt, event)

    def _handshake(self, recorded: dict[str, str]) -> dict[str, str]:
        """Return the headers of CONNECT for this broker."""
        headers = {**recorded, **self._connect}
        if "heart-beat" in headers:
            headers["heart-beat"] = "0,0"
        return {
            name: value
            for name, value in headers.items()
            if not (is_secret(name) and value == MASK)
        }

    def _write(self, connection: _Connection, octets: bytes, event: Event) -> None:
        try:
            connection.socket.settimeout(self._timeout_s)
            connection.socket.sendall(octets)
        except TimeoutError:
            raise self._failure(event, "the broker does not read", connection) from None
        except OSError:
            # It may have sent the reason.
            with contextlib.suppress(TimeoutError, RemoteProtocolError):
                connection.receive_until(monotonic() + self._timeout_s)
            raise self._failure(event, "the broker has closed", connection) from None

    def _confirm(self, connection: _Connection, receipt: str, event: SeenFrame) -> None:
        """Wait until the broker has processed a frame: it sends RECEIPT or ERROR, or closes."""
        deadline = monotonic() + self._timeout_s
        while not connection.ended:
            for frame in connection.arrived:
                if frame.command == "RECEIPT" and frame.headers.get("receipt-id") == receipt:
                    if event.headers.get("receipt") is None:
                        connection.arrived.remove(frame)
                    return
            if any(frame.command == "ERROR" for frame in connection.arrived):
                return
            self._receive(connection, deadline, event, "no RECEIPT or ERROR came for it")

    # Receiving.

    def _wait_for(self, connection: _Connection, event: SeenFrame) -> None:
        """Wait for a frame that corresponds to a recorded one, and learn the new ids."""
        deadline = monotonic() + self._timeout_s
        wants_error = event.connection in self._refused
        while (frame := connection.taken(event.frame)) is None:
            if connection.ended:
                raise self._failure(event, "the broker has closed instead", connection)
            if not wants_error and any(it.command == "ERROR" for it in connection.arrived):
                raise self._failure(event, "ERROR came instead", connection)
            self._receive(connection, deadline, event, "it did not come")
        connection.ids.learn(event.frame, frame)
        self._note("sent", connection, frame)

    def _receive(
        self, connection: _Connection, deadline: float, event: Event, problem: str
    ) -> None:
        """Process the data that the broker sends."""
        try:
            connection.receive_until(deadline)
        except TimeoutError:
            problem += f" within {self._timeout_s:g} s"
            raise self._failure(event, problem, connection) from None
        except RemoteProtocolError as error:
            problem = f"the broker sent what is no frame ({error})"
            raise self._failure(event, problem, connection) from error

    # Ending.

    def _end(self, number: int, event: Closed | None) -> None:
        """End a connection in the same way as in the transcript."""
        connection = self._connections.pop(number, None)
        if connection is None:
            return
        deadline = monotonic() + self._timeout_s
        with contextlib.closing(connection.socket):
            if event is None or event.by != "broker":
                # Do not close at once: unread data would turn the close into a reset, and data that
                # the broker has not read yet would be lost.
                with contextlib.suppress(OSError):
                    connection.socket.shutdown(socket.SHUT_WR)
            while not connection.ended:
                try:
                    connection.receive_until(deadline)
                except RemoteProtocolError as error:
                    problem = f"the broker sent what is no frame ({error})"
                    raise self._failure(event, problem, connection) from error
                except TimeoutError:
                    if event is not None and event.by == "broker":
                        problem = f"it did not close within {self._timeout_s:g} s"
                        raise self._failure(event, problem, connection) from None
                    break
        for frame in connection.arrived:
            self._note("sent", connection, frame)
        if event is not None:
            self.happened.append(Closed(number, self._now(), event.by))

    def _failure(
        self, event: Event | None, problem: str, connection: _Connection
    ) -> ReplayFailedError:
        """Return the error that explains the deviation from the transcript."""
        lines = [problem if event is None else f"replaying {event}: {problem}"]
        if connection.arrived:
            lines.append("what came and was not waited for:")
            lines += [f"  {self._secrets.text(shown_frame(it))}" for it in connection.arrived]
        lines.append("the last that happened:")
        lines += [f"  {line}" for line in timed_lines(self.happened[-_SHOWN_LAST:])]
        return ReplayFailedError("\n".join(lines), [lines[0]])


def _turns(events: Sequence[Event]) -> frozenset[int]:
    """Return the indexes of the frames after which another client sends."""
    turns = set()
    latest: tuple[int, SeenFrame | Octets] | None = None
    for index, event in enumerate(events):
        if isinstance(event, SeenFrame | Octets) and event.direction == "received":
            if latest is not None and latest[1].connection != event.connection:
                number, before = latest
                if isinstance(before, SeenFrame) and before.command not in _HANDSHAKE:
                    turns.add(number)
            latest = index, event
    return frozenset(turns)


class _Connection(ReplayPeer):
    """One connection to the broker."""

    def __init__(
        self, number: int, address: tuple[str, int], timeout_s: float, recorded: Version | None
    ) -> None:
        super().__init__(number, socket.create_connection(address, timeout_s), recorded)
        #: Ids that the client has chosen for its subscriptions.
        self.chosen: set[str] = set()

    def receive_until(self, deadline: float) -> None:
        """Receive the next data; raises TimeoutError and RemoteProtocolError."""
        remaining_s = deadline - monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        self.socket.settimeout(remaining_s)
        self.receive()

    def taken(self, recorded: Frame) -> Frame | None:
        """Take the frame that corresponds to a recorded one; ``None`` if it has not come yet."""
        wanted = self.ids.translated(recorded)
        candidates = [frame for frame in self.arrived if self._stands_for(frame, wanted, recorded)]
        if not candidates:
            return None
        same = (frame for frame in candidates if frame.body == wanted.body)
        frame = next(same, candidates[0])
        self.arrived = [other for other in self.arrived if other is not frame]
        return frame

    def _stands_for(self, frame: Frame, wanted: Frame, recorded: Frame) -> bool:
        if frame.command != wanted.command:
            return False
        if frame.command == "RECEIPT":
            return frame.headers.get("receipt-id") == wanted.headers.get("receipt-id")
        if frame.command != "MESSAGE":
            return True
        name = "destination"
        if recorded.headers.get("subscription") in self.chosen:
            name = "subscription"
        return frame.headers.get(name) == wanted.headers.get(name)
