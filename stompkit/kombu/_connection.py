"""One connection to a broker, read by its own thread, used by any others.

The thread keeps the heart-beats while a worker is busy with a task. A sender writes its frame
itself, so the kernel has the frame when :meth:`StompConnection.send` returns.
"""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Final

from stompkit._common.text import text_of
from stompkit.frames import Frame, ProtocolError, Role, Session, State, Tolerance
from stompkit.kombu._wakeup_pipe import WakeupPipe

__all__ = ["Address", "ConnectionLostError", "NoAnswerError", "StompConnection"]

_READ_BYTES: Final = 256 * 1024
#: Number of bytes that may wait for the broker to read before senders block.
_MOST_WAITING: Final = 1024 * 1024
#: Maximum time in seconds for closing.
_CLOSE_S: Final = 5.0
_ERROR_TEXT: Final = 500


class ConnectionLostError(ConnectionError):
    """The connection to the broker has ended or failed; the message gives the reason."""


class NoAnswerError(ConnectionLostError):
    """The broker has sent no receipt in time; it may or may not have taken the message."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """Address of the broker, and the login."""

    host: str
    port: int
    login: str | None = None
    passcode: str | None = field(default=None, repr=False)
    virtual_host: str = "/"
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    """Name that the certificate must match, if not ``host``."""
    connect_s: float = 10.0
    answer_s: float = 60.0
    """Maximum time in seconds to wait for a RECEIPT."""
    heartbeat_s: float = 10.0
    """Heart-beat interval in seconds, in both directions; 0 disables heart-beats."""


class _Receipt:
    """A pending broker answer to one frame."""

    def __init__(self) -> None:
        self.event = threading.Event()


class StompConnection:
    """A connection that is logged in. All methods are thread-safe."""

    def __init__(self, address: Address, wakeup: WakeupPipe | None = None) -> None:
        """Connect and log in, which blocks; raises :class:`ConnectionLostError`.

        ``wakeup`` is the pipe of another connection, so that a caller can wait for both.
        """
        self.address = address
        self.failure: ConnectionLostError | None = None
        #: True if the failure has been reported to a caller.
        self.is_reported = False
        #: Rung when a message has arrived or the connection has ended.
        self.wakeup = wakeup or WakeupPipe()
        self._has_own_wakeup = wakeup is None
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._has_room = threading.Condition(self._lock)
        self._outgoing = bytearray()
        self._receipts: dict[str, _Receipt] = {}
        self._handlers: dict[str, Callable[[Frame], object]] = {}
        self._numbers = count(1)
        self._is_closing = False
        beat_ms = int(address.heartbeat_s * 1000)
        self._session = Session(
            Role.CLIENT, monotonic(), heart_beat=(beat_ms, beat_ms), tolerance=Tolerance.LENIENT
        )
        self._poke_in, self._poke_out = os.pipe()
        os.set_blocking(self._poke_in, False)
        os.set_blocking(self._poke_out, False)
        self._socket: socket.socket | None = None
        try:
            self._socket = _opened(address)
            self.server = self._log_in(self._socket)
        except (OSError, ProtocolError) as error:
            self._abandon()
            self._close_wakeup()
            if isinstance(error, ConnectionLostError):
                raise
            raise ConnectionLostError(f"no STOMP session with {self._peer}: {error}") from error
        except BaseException:
            self._abandon()
            self._close_wakeup()
            raise
        self._socket.setblocking(False)
        self._thread = threading.Thread(target=self._run, name=f"stomp {self._peer}", daemon=True)
        self._thread.start()

    @property
    def _peer(self) -> str:
        return f"{self.address.host}:{self.address.port}"

    @property
    def version(self) -> str:
        """Negotiated version of STOMP."""
        return self._session.version or "1.0"

    @property
    def is_alive(self) -> bool:
        """True if the connection can be used, in this process."""
        return self.failure is None and not self._is_closing and self._pid == os.getpid()

    def check(self) -> None:
        """Raise :class:`ConnectionLostError` if the connection has ended."""
        if self.failure is not None:
            self.is_reported = True
            raise ConnectionLostError(*self.failure.args)
        if not self.is_alive:
            raise ConnectionLostError(f"the connection to {self._peer} is closed")

    # Sending.

    def send(self, frame: Frame) -> None:
        """Write a frame to the kernel, which may block; raises :class:`ConnectionLostError`."""
        with self._lock:
            self.check()
            data = self._session.send(frame, monotonic())
            self._write(data)
            while len(self._outgoing) > _MOST_WAITING and self.failure is None:
                self._has_room.wait()
            self.check()

    def request(self, frame: Frame) -> None:
        """Send a frame and wait for its RECEIPT.

        Raises :class:`ConnectionLostError`, also if the broker refuses: in STOMP, every ERROR ends
        the connection.
        """
        name = f"r{next(self._numbers)}"
        receipt = self._receipts[name] = _Receipt()
        try:
            self.send(Frame(frame.command, {**frame.headers, "receipt": name}, frame.body))
            if not receipt.event.wait(self.address.answer_s):
                raise NoAnswerError(
                    f"{self._peer} has not confirmed {frame.command} in {self.address.answer_s} s"
                )
        finally:
            self._receipts.pop(name, None)
        if self.failure is not None:
            self.check()

    def subscribe(
        self, headers: dict[str, str], handler: Callable[[Frame], object], name: str | None = None
    ) -> str:
        """Subscribe, and return the subscription's id when the broker has confirmed it.

        ``handler`` is called with each MESSAGE, in the connection's thread. ``name`` is the id, by
        default a new one.
        """
        name = name or f"s{next(self._numbers)}"
        self._handlers[name] = handler
        try:
            self.request(Frame("SUBSCRIBE", {"id": name, **headers}))
        except BaseException:
            del self._handlers[name]
            raise
        return name

    def unsubscribe(self, name: str, destination: str) -> None:
        """End a subscription; after this returns, it delivers no messages."""
        # STOMP 1.0 identifies the subscription by its destination.
        self.request(Frame("UNSUBSCRIBE", {"id": name, "destination": destination}))
        self._handlers.pop(name, None)

    def _write(self, data: bytes) -> None:
        """Write the bytes that the kernel accepts now; the thread writes the rest."""
        if not self._outgoing:
            try:
                data = data[self._written(data) :]
            except OSError as error:
                self._fail(f"the connection to {self._peer} broke: {error}")
                return
        if data:
            self._outgoing += data
            self._poke()

    def _written(self, data: bytes | bytearray) -> int:
        assert self._socket is not None
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    def _poke(self) -> None:
        # Either a wake-up is pending already, or the connection has ended.
        with suppress(OSError):
            os.write(self._poke_out, b"!")

    # Ending.

    def close(self) -> None:
        """Disconnect and close. In a forked child process, only close the descriptors."""
        if self._pid != os.getpid():
            self._abandon()
            self._close_wakeup()
            return
        if self.failure is None and not self._is_closing:
            with suppress(ConnectionLostError, ProtocolError):
                receipt = self._receipts["bye"] = _Receipt()
                self.send(Frame("DISCONNECT", {"receipt": "bye"}))
                receipt.event.wait(_CLOSE_S)
        self._is_closing = True
        self.wakeup.wake()
        if self._thread.is_alive():
            self._poke()
            self._thread.join(_CLOSE_S)
        self._close_wakeup()

    def _close_wakeup(self) -> None:
        if self._has_own_wakeup:
            self.wakeup.close()

    def _fail(self, reason: str) -> None:
        """Record the reason for the end of the connection, and wake all waiters."""
        if self.failure is None:
            self.failure = ConnectionLostError(reason)
        self._outgoing.clear()
        for receipt in list(self._receipts.values()):
            receipt.event.set()
        self._has_room.notify_all()
        self._poke()
        self.wakeup.wake()

    def _abandon(self) -> None:
        if self._socket is not None:
            self._socket.close()
        # Not closed twice: the number may belong to another file by then.
        for descriptor in self._poke_in, self._poke_out:
            if descriptor >= 0:
                os.close(descriptor)
        self._poke_in = self._poke_out = -1

    # The thread.

    def _log_in(self, stream: socket.socket) -> str:
        """Log in; return the broker's ``server`` header."""
        address = self.address
        headers = {"host": address.virtual_host}
        if address.login is not None:
            headers["login"] = address.login
        if address.passcode is not None:
            headers["passcode"] = address.passcode
        stream.sendall(self._session.connect(headers, monotonic()))
        until = monotonic() + address.connect_s
        while True:
            stream.settimeout(max(0.001, until - monotonic()))
            data = stream.recv(_READ_BYTES)
            if not data:
                raise ConnectionLostError(f"{self._peer} closed the connection instead of a login")
            for frame in self._session.receive(data, monotonic()):
                if frame.command == "ERROR":
                    raise ConnectionLostError(f"{self._peer} refused the login: {_reason(frame)}")
                return frame.headers.get("server", "")

    def _run(self) -> None:
        """Read, send heart-beats, and write the bytes that the kernel did not accept at once."""
        stream = self._socket
        assert stream is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._poke_in, selectors.EVENT_READ)
            selector.register(stream, selectors.EVENT_READ)
            try:
                while self.failure is None and not self._is_closing:
                    self._turn(selector, stream)
            except (OSError, ProtocolError) as error:
                reason = text_of(error)
                with self._lock:
                    self._fail(f"the connection to {self._peer} broke: {reason}")
        with self._lock:
            self._fail(f"the connection to {self._peer} is closed")
            self._abandon()

    def _turn(self, selector: selectors.BaseSelector, stream: socket.socket) -> None:
        with self._lock:
            wanted = selectors.EVENT_READ
            if self._outgoing:
                wanted |= selectors.EVENT_WRITE
            deadline = self._session.heart_beat.next_deadline()
        selector.modify(stream, wanted)
        pause = None if deadline is None else max(0.0, deadline - monotonic())
        for key, _ in selector.select(pause):
            if key.fd == self._poke_in:
                os.read(self._poke_in, 1024)
        self._read(stream)
        with self._lock:
            beat = self._session.heart_beat
            if beat.is_dead(monotonic()):
                self._fail(f"{self._peer} has sent no heart-beat for {beat.receive_s * 2:.0f} s")
            elif beat.must_send(monotonic()) and not self._outgoing:
                beat.last_sent = monotonic()
                self._outgoing += b"\n"
            if self._outgoing:
                del self._outgoing[: self._written(self._outgoing)]
                self._has_room.notify_all()

    def _read(self, stream: socket.socket) -> None:
        """Read the received bytes, and dispatch their frames."""
        while True:
            # A TLS connection must not be read and written at the same time.
            with self._lock:
                try:
                    data = stream.recv(_READ_BYTES)
                except (BlockingIOError, InterruptedError):
                    return
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    return
            if not data:
                raise ConnectionLostError("the broker closed it")
            while True:
                with self._lock:
                    frames = self._session.receive(data, monotonic())
                if not frames:
                    break
                for frame in frames:
                    self._take(frame)
                data = b""

    def _take(self, frame: Frame) -> None:
        if frame.command == "MESSAGE":
            # A STOMP 1.0 broker need not name a subscription that has no id.
            handler = self._handlers.get(frame.headers.get("subscription", ""))
            if handler is not None:
                handler(frame)
                self.wakeup.wake()
        elif frame.command == "RECEIPT":
            receipt = self._receipts.get(frame.headers.get("receipt-id", ""))
            if receipt is not None:
                receipt.event.set()
        elif self._session.state is not State.DISCONNECTING:
            raise ConnectionLostError(f"the broker said {_reason(frame)}")


def _opened(address: Address) -> socket.socket:
    """Return a socket connected to the broker, with its TLS handshake done."""
    stream = socket.create_connection((address.host, address.port), address.connect_s)
    try:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if address.tls is not None:
            name = address.server_name or address.host
            stream = address.tls.wrap_socket(stream, server_hostname=name)
    except BaseException:
        stream.close()
        raise
    return stream


def _reason(frame: Frame) -> str:
    """Return the text of an ERROR frame in one line of bounded length."""
    message = frame.headers.get("message", "")
    body = frame.body[:_ERROR_TEXT].decode("utf-8", "replace")
    return " ".join(f"{message}: {body}".split())[:_ERROR_TEXT]
