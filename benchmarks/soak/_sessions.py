"""Connections of all kinds: STOMP over TCP and over WebSocket, and beanstalk.

Timeouts are counted in ticks, not by the clock: when the machine is suspended for minutes, the
broker is suspended as well, and nothing is late.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from benchmarks._client import Client, RefusedError
from stompkit.frames import Frame, encode

if TYPE_CHECKING:
    from wsproto import WSConnection

__all__ = ["PATIENCE_TICKS", "TICK_S", "BeanstalkSession", "Session", "WebSocketSession"]

TICK_S: Final = 0.25
#: Timeout for immediate answers: a minute, on a busy machine.
PATIENCE_TICKS: Final = 240
#: Timeout of system calls in seconds, longer than a suspension of the machine.
_TIMEOUT_S: Final = 1_800.0


class Session(Client):
    """A connection that sorts incoming frames into messages and receipts."""

    def __init__(self, port: int) -> None:
        """Connect and log in; raise OSError and Refused."""
        self.messages: deque[Frame] = deque()
        self._unconfirmed: dict[str, None] = {}
        self._receipts: list[str] = []
        self._last_receipt = 0
        super().__init__(port)
        self.socket.settimeout(_TIMEOUT_S)
        self.log_in()

    def __enter__(self) -> Self:
        """Return the session."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the socket without DISCONNECT."""
        self.close()

    def send_frame(
        self, command: str, headers: dict[str, str], body: bytes = b"", *, receipt: str = ""
    ) -> None:
        """Send a frame; with ``receipt``, :meth:`confirm` waits for its receipt."""
        if receipt:
            headers = {**headers, "receipt": receipt}
            self._unconfirmed[receipt] = None
        self.write(encode(Frame(command, headers, body), "1.2"))

    def call(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        """Send a frame and wait for its receipt."""
        self._last_receipt += 1
        self.send_frame(command, headers, body, receipt=f"call-{self._last_receipt}")
        self.confirm()

    def poll(self, wait_s: float = TICK_S) -> bool:
        """Read available data, or wait for it until the timeout; return True if there was any."""
        if not select.select([self.socket], [], [], wait_s)[0]:
            return False
        for frame in self.receive():
            if frame.command == "MESSAGE":
                self.messages.append(frame)
            elif frame.command == "RECEIPT":
                receipt = frame.headers["receipt-id"]
                self._unconfirmed.pop(receipt, None)
                self._receipts.append(receipt)
            else:
                raise RefusedError(f"{frame.command} came")
        return True

    def receipts(self) -> list[str]:
        """Return the receipts since the last call."""
        found, self._receipts = self._receipts, []
        return found

    def confirm(self, most: int = 0) -> None:
        """Wait until at most this many receipts are missing; raise TimeoutError."""
        patience = PATIENCE_TICKS
        while len(self._unconfirmed) > most:
            patience = PATIENCE_TICKS if self.poll() else patience - 1
            if not patience:
                first = next(iter(self._unconfirmed))
                raise TimeoutError(f"the receipt {first} of {len(self._unconfirmed)} never came")

    def message(self, ticks: int = 1) -> Frame | None:
        """Return the next message, if one arrives within this many ticks."""
        while not self.messages:
            if not ticks:
                return None
            ticks -= not self.poll()
        return self.messages.popleft()

    def due_message(self) -> Frame:
        """Return the next message, which has to arrive; raise TimeoutError."""
        frame = self.message(PATIENCE_TICKS)
        if frame is None:
            raise TimeoutError("a message that is due never came")
        return frame

    def disconnect(self) -> None:
        """Send DISCONNECT and wait for its receipt."""
        self.call("DISCONNECT", {})
        self.close()


class WebSocketSession(Session):
    """The same over WebSocket; needs wsproto."""

    _websocket: WSConnection | None = None

    def write(self, octets: bytes) -> None:
        """Send bytes as a WebSocket message, the first time after the handshake."""
        from wsproto.events import BytesMessage

        if self._websocket is None:
            self._websocket = self._shake_hands()
        self.socket.sendall(self._websocket.send(BytesMessage(data=octets)))

    def _shake_hands(self) -> WSConnection:
        from wsproto import ConnectionType, WSConnection
        from wsproto.events import AcceptConnection, Request

        websocket = WSConnection(ConnectionType.CLIENT)
        request = Request(host="127.0.0.1", target="/", subprotocols=["v12.stomp"])
        self.socket.sendall(websocket.send(request))
        while True:
            websocket.receive_data(super().read())
            for event in websocket.events():
                if not isinstance(event, AcceptConnection):
                    raise RefusedError(f"no WebSocket: {event!r:.200}")
                return websocket

    def read(self) -> bytes:
        """Return the next messages, waiting for them; empty after a ping only."""
        from wsproto.events import BytesMessage, Ping, TextMessage

        assert self._websocket is not None
        self._websocket.receive_data(super().read())
        octets = b""
        for event in self._websocket.events():
            if isinstance(event, BytesMessage):
                octets += event.data
            elif isinstance(event, TextMessage):
                octets += event.data.encode()
            elif isinstance(event, Ping):
                self.socket.sendall(self._websocket.send(event.response()))
            else:
                raise RefusedError(f"the WebSocket ended: {event!r:.200}")
        return octets


class BeanstalkSession:
    """A client of beanstalkd."""

    def __init__(self, port: int) -> None:
        """Connect; raise OSError."""
        self._socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        """Return the session."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the socket."""
        self._file.close()
        self._socket.close()

    def ask(self, command: str, job: bytes | None = None) -> list[str]:
        """Return the words of an answer; raise Refused at the end of the connection."""
        octets = b"" if job is None else job + b"\r\n"
        self._socket.sendall(command.encode() + b"\r\n" + octets)
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise RefusedError("the broker has closed the connection")
        return line.decode().split()

    def put(self, job: bytes) -> None:
        """Put a job; raise Refused."""
        answer = self.ask(f"put 65536 0 60 {len(job)}", job)
        if answer[:1] != ["INSERTED"]:
            raise RefusedError(f"put: {' '.join(answer)}")

    def reserve(self) -> tuple[str, bytes]:
        """Return the id and the bytes of an available job; raise Refused."""
        answer = self.ask("reserve-with-timeout 60")
        if answer[:1] != ["RESERVED"]:
            raise RefusedError(f"reserve: {' '.join(answer)}")
        octets = self._file.read(int(answer[2]) + 2)
        return answer[1], octets[:-2]
