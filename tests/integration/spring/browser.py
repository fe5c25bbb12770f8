"""STOMP between a page in a browser and a Spring application.

There are three kinds of connections: WebSocket messages; the same with SockJS's frames; and
SockJS's fallback without WebSocket. The latter is an endless response, and a request for each sent
message.
"""

from __future__ import annotations

import http.client
import json
import queue
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Final

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Message,
    Ping,
    Request,
    TextMessage,
)

from stompkit.frames import Frame, FrameDecoder, encode

__all__ = ["TRANSPORTS", "Browser"]

#: Timeout of a frame, in seconds.
DEADLINE_S: Final = 120.0
#: Size in bytes of the pieces into which stomp.js splits a frame for WebSocket messages.
_PIECE: Final = 8 * 1024
_sessions: Final = count(1)


class Transport(ABC):
    """A connection that carries text, with a thread that reads."""

    def __init__(self, port: int) -> None:
        """Connect to an instance's web server."""
        self._port = port
        #: Received data: bytes, or ``None`` at the end.
        self.received: queue.Queue[bytes | None] = queue.Queue()
        self.code: int | None = None
        """Code with which the WebSocket was closed."""

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Send a part of the stream."""

    @abstractmethod
    def cut(self) -> None:
        """Close the connection abruptly, as when a laptop is closed."""


class WebSocket(Transport):
    """Messages of a WebSocket, each a part of the stream."""

    path = "/websocket"

    def __init__(self, port: int) -> None:
        """Connect, and wait for the handshake."""
        super().__init__(port)
        self._connection = WSConnection(ConnectionType.CLIENT)
        self._lock = threading.Lock()
        self._socket = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        self._socket.settimeout(None)
        self._opened = threading.Event()
        self._write(
            Request(
                host=f"127.0.0.1:{port}",
                target=self._target(),
                subprotocols=["v12.stomp", "v11.stomp", "v10.stomp"],
            )
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._opened.wait(DEADLINE_S), "the WebSocket was not accepted"

    def send(self, data: bytes) -> None:
        """Send messages of at most 8 KiB."""
        for begin in range(0, len(data), _PIECE):
            self._write(BytesMessage(data[begin : begin + _PIECE]))

    def cut(self) -> None:
        """Close the socket."""
        _shut_down(self._socket)
        self._reader.join()
        self._socket.close()

    def _target(self) -> str:
        return self.path

    def _write(self, event: Any) -> None:
        with self._lock:
            self._socket.sendall(self._connection.send(event))

    def _read(self) -> None:
        try:
            while data := self._socket.recv(65_536):
                self._connection.receive_data(data)
                for event in self._connection.events():
                    self._take(event)
        except OSError:
            pass
        self.received.put(None)

    def _take(self, event: Any) -> None:
        if isinstance(event, AcceptConnection):
            self._opened.set()
        elif isinstance(event, Message):
            data = event.data if isinstance(event.data, bytes) else str(event.data).encode()
            self._take_data(bytes(data))
        elif isinstance(event, Ping):
            self._write(event.response())
        elif isinstance(event, CloseConnection):
            self.code = int(event.code)
            if self._connection.state.name == "REMOTE_CLOSING":
                self._write(event.response())

    def _take_data(self, data: bytes) -> None:
        self.received.put(data)


class SockJsWebSocket(WebSocket):
    """SockJS's frames in messages of a WebSocket."""

    def __init__(self, port: int) -> None:
        """Connect, and wait until SockJS has opened its session."""
        self._session_opened = threading.Event()
        self._parts = b""
        super().__init__(port)
        assert self._session_opened.wait(DEADLINE_S), "SockJS did not open a session"

    def send(self, data: bytes) -> None:
        """Send the stream in an array with one text of at most 8 KiB each."""
        text = data.decode()
        for begin in range(0, len(text), _PIECE):
            self._write(TextMessage(json.dumps([text[begin : begin + _PIECE]])))

    def _target(self) -> str:
        return f"/sockjs/000/session{next(_sessions)}/websocket"

    def _take_data(self, data: bytes) -> None:
        self._parts += data
        kind, self._parts = self._parts, b""
        if kind.startswith(b"a"):
            try:
                texts = json.loads(kind[1:])
            except ValueError:
                # A large message may arrive in several parts.
                self._parts = kind
                return
            for text in texts:
                self.received.put(text.encode())
        elif kind.startswith(b"o"):
            self._session_opened.set()
        elif kind.startswith(b"c"):
            self.code = json.loads(kind[1:])[0]


class SockJsStreaming(Transport):
    """SockJS without WebSocket: ``xhr_streaming`` and ``xhr_send``."""

    def __init__(self, port: int) -> None:
        """Request the stream, and wait until SockJS has opened its session."""
        super().__init__(port)
        self._base = f"/sockjs/000/session{next(_sessions)}"
        self._opened = threading.Event()
        self._stream = http.client.HTTPConnection("127.0.0.1", port)
        self._stream.request("POST", f"{self._base}/xhr_streaming")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._opened.wait(DEADLINE_S), "SockJS did not open a session"

    def send(self, data: bytes) -> None:
        """Send the stream by a separate request."""
        request = http.client.HTTPConnection("127.0.0.1", self._port, timeout=DEADLINE_S)
        headers = {"Content-Type": "application/json"}
        try:
            request.request("POST", f"{self._base}/xhr_send", json.dumps([data.decode()]), headers)
            answer = request.getresponse()
            assert answer.status == http.HTTPStatus.NO_CONTENT, (answer.status, answer.read())
        finally:
            request.close()

    def cut(self) -> None:
        """Close the stream's socket."""
        connection = self._stream.sock
        if connection is not None:
            _shut_down(connection)
        self._reader.join()
        self._stream.close()

    def _read(self) -> None:
        response = self._stream.getresponse()
        try:
            while line := response.readline().strip():
                self._take(line)
        except (OSError, http.client.HTTPException):
            pass
        self.received.put(None)

    def _take(self, line: bytes) -> None:
        if line == b"o":
            self._opened.set()
        elif line.startswith(b"a"):
            for text in json.loads(line[1:]):
                self.received.put(text.encode())
        elif line.startswith(b"c"):
            self.code = json.loads(line[1:])[0]


def _shut_down(stream: socket.socket) -> None:
    """Shut down a stream, so that its reader notices the end, unless the server has ended it."""
    with suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)


#: The ways in which a page connects to the application.
TRANSPORTS: Final[dict[str, Callable[[int], Transport]]] = {
    "websocket": WebSocket,
    "sockjs-websocket": SockJsWebSocket,
    "sockjs-streaming": SockJsStreaming,
}


class Browser:
    """A page with a STOMP client: a session of the application, with its relay connection."""

    def __init__(
        self,
        port: int,
        user: str | None = None,
        *,
        transport: str = "websocket",
        heart_beat: str = "0,0",
        version: str = "1.2",
    ) -> None:
        """Connect to an instance and send CONNECT; :meth:`frame` returns the answer."""
        self._transport = TRANSPORTS[transport](port)
        self._decoder = FrameDecoder("1.2")
        self._frames: list[Frame] = []
        self._numbers = count(1)
        self._is_cut = False
        self.beats = 0
        """Number of received heart-beats."""
        headers = {"accept-version": version, "host": "example", "heart-beat": heart_beat}
        if user is not None:
            headers["login"] = user
        try:
            self.write("CONNECT", headers)
        except BaseException:
            self.cut()
            raise

    @classmethod
    def connect(cls, port: int, user: str | None = None, **options: str) -> Browser:
        """Connect to an instance, and wait for CONNECTED."""
        browser = cls(port, user, **options)
        try:
            browser.connected = browser.frame()
            assert browser.connected.command == "CONNECTED", browser.connected
        except BaseException:
            browser.cut()
            raise
        return browser

    connected: Frame
    """The CONNECTED frame."""

    @property
    def code(self) -> int | None:
        """Code with which the WebSocket or SockJS's session was closed."""
        return self._transport.code

    def write(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        """Send a frame."""
        self._transport.send(encode(Frame(command, headers, body), "1.2"))

    def beat(self) -> None:
        """Send a heart-beat."""
        self._transport.send(b"\n")

    def ask(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        """Send a frame, and wait for its receipt, after which no other frame may follow."""
        receipt = f"receipt-{next(self._numbers)}"
        self.write(command, {**headers, "receipt": receipt}, body)
        answer = self.frame()
        assert (answer.command, answer.headers.get("receipt-id")) == ("RECEIPT", receipt), answer

    def subscribe(self, destination: str, number: str = "0", **headers: str) -> None:
        """Subscribe at the broker, and wait for the receipt."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        self.ask("SUBSCRIBE", {"id": number, "destination": destination, **more})

    def send(self, destination: str, text: str, **headers: str) -> None:
        """Send a text in JSON, as a page does, without a receipt."""
        body = json.dumps({"text": text}, ensure_ascii=False).encode()
        sent = {"destination": destination, "content-type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        self.write("SEND", sent, body)

    def has_frame(self) -> bool:
        """Return True if a frame has arrived."""
        while not self._frames and not self._transport.received.empty():
            if not self._take():
                break
        return bool(self._frames)

    def frame(self) -> Frame:
        """Wait for a frame."""
        found = self._next()
        assert found is not None, f"the connection has ended with {self.code}"
        return found

    def receive(self) -> Frame:
        """Wait for a message."""
        message = self.frame()
        assert message.command == "MESSAGE", message
        return message

    def text(self) -> str:
        """Wait for a message with a text in JSON, and return the text."""
        return str(json.loads(self.receive().body)["text"])

    def wait_for_beat(self) -> None:
        """Wait for a heart-beat; no frame may arrive before."""
        seen = self.beats
        while self.beats == seen:
            assert self._take(), f"the connection has ended with {self.code}"
            assert not self._frames, self._frames

    def wait_for_end(self) -> list[Frame]:
        """Wait for the end of the connection; return the frames before it."""
        frames = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def disconnect(self) -> None:
        """Send DISCONNECT, and wait for its receipt."""
        self.ask("DISCONNECT", {})

    def cut(self) -> None:
        """Close the connection without DISCONNECT; do nothing the second time."""
        if not self._is_cut:
            self._is_cut = True
            self._transport.cut()

    def _next(self) -> Frame | None:
        while not self._frames:
            if not self._take():
                return None
        return self._frames.pop(0)

    def _take(self) -> bool:
        """Wait for a part of the stream; return False at its end."""
        data = self._transport.received.get(timeout=DEADLINE_S)
        if data is None:
            # A later call returns the same.
            self._transport.received.put(None)
            return False
        if data == b"\n":
            self.beats += 1
        while frames := self._decoder.feed(data):
            data = b""
            self._frames += frames
        return True
