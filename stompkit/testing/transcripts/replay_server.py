"""Replay of the broker of a transcript to clients."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Collection
from types import TracebackType
from typing import Final, Self

from stompkit._common.clock import monotonic
from stompkit.frames import Frame, RemoteProtocolError
from stompkit.testing.frames.events import Closed, End, Event, Octets, Opened, SeenFrame
from stompkit.testing.frames.log import FrameLog
from stompkit.testing.frames.words import shown_frame
from stompkit.testing.launching.ports import usable
from stompkit.testing.proxy.sockets import owned, resolved, stop_listening
from stompkit.testing.transcripts.replay_peer import ReplayPeer
from stompkit.testing.transcripts.replaying import (
    ReplayFailedError,
    check_replayable,
    differences,
    versions_in,
)
from stompkit.testing.transcripts.transcript import Transcript

__all__ = ["ReplayServer"]

_BACKLOG: Final = 50


class _DiffersError(Exception):
    """The client deviated so that the replay cannot continue; the message says how."""

    def __init__(self, problem: str, peer: ReplayPeer | None = None) -> None:
        super().__init__(problem)
        self.peer = peer


class ReplayServer:
    """A server that answers as the broker of a transcript did; it listens on a free port.

    It follows the order of the transcript: it waits for the frames of the client, and sends those
    of the broker, with the receipts, subscriptions and transactions that the client uses now. The
    first client to connect is connection 1 of the transcript. No heart-beats are negotiated.

    ``differences`` lists the deviations of the client. A different header or body, apart from ids
    and the passcode, is only recorded; ``ignore`` names headers that may differ. If the command
    differs or a frame is missing, the replay cannot continue: the client gets an ERROR with the
    expected command, and all connections end.

    As a context manager, it stops listening on exit. It then raises ReplayFailedError if there were
    differences, or if not all recorded events have happened within ``timeout_s`` seconds.
    """

    host: str
    """The address to listen on."""
    port: int
    """The TCP port to listen on; 0 before ``start``."""
    frames: FrameLog
    """Log of the replayed events."""
    differences: list[str]
    """Differences so far, one line each."""

    def __init__(
        self,
        transcript: Transcript,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        ignore: Collection[str] = (),
        timeout_s: float = 5.0,
    ) -> None:
        """Prepare the server; ``port`` 0 selects a free one.

        ``::1`` replaces ``127.0.0.1`` if this machine has no IPv4.
        Raises ValueError for an incomplete transcript, or one in which clients sent invalid frames,
        and LocalProtocolError for a frame that STOMP cannot encode.
        """
        check_replayable(transcript, "received")
        self.host = usable(host)
        self.port = port
        self.frames = FrameLog()
        self.differences = []
        self._events = transcript.events
        self._versions = versions_in(transcript.events)
        #: Numbers of the connections still to come, in their order.
        self._expected = list(dict.fromkeys(event.connection for event in transcript.events))
        self._ignored = frozenset(ignore)
        self._timeout_s = timeout_s
        self._peers: dict[int, ReplayPeer] = {}
        self._ended: set[int] = set()  # connections that have ended
        self._leaving: set[int] = set()  # connections with a DISCONNECT or an ERROR
        self._unasked: set[tuple[int, str | None]] = set()  # receipts not requested in the replay
        self._is_over = False  # True if the replay cannot continue
        self._stop_at: float | None = None
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> Self:
        """Listen; raises OSError on failure, and RuntimeError the second time."""
        if self._thread is not None or self._stop_at is not None:
            raise RuntimeError("a replay can be started once only: make another one")
        family, address = resolved(self.host, self.port)[0]
        listener = socket.create_server(address, family=family, backlog=_BACKLOG)
        self._listener = owned(listener)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._woken, self._wake = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="stomp-replay", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop after all recorded events have happened, or after the timeout.

        Nothing happens the second time. Raises RuntimeError after an internal error of the server.
        """
        self._stop_within(self._timeout_s)

    def check(self) -> None:
        """Stop, and raise ReplayFailedError if there were differences."""
        self.stop()
        if self.differences:
            lines = ["not as in the transcript:", *self.differences, "what happened:"]
            raise ReplayFailedError("\n".join([*lines, self.frames.text(20)]), self.differences)

    def __enter__(self) -> Self:
        """Start the server."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop and raise the differences; after another error only stop, immediately."""
        if kind is None:
            self.check()
        else:
            self._stop_within(0)

    def _stop_within(self, timeout_s: float) -> None:
        """Wait for the thread to end, within the timeout."""
        if self._thread is None:
            return
        self._stop_at = monotonic() + timeout_s
        with contextlib.suppress(OSError):
            self._wake.send(b"\0")
        self._thread.join()
        self._thread = None
        self._wake.close()
        if self._failure is not None:
            raise RuntimeError("the replay has failed") from self._failure

    # In the thread.

    def _run(self) -> None:
        try:
            try:
                self._play()
            except _DiffersError as differs:
                self._give_up(differs)
            self._stay()
        except Exception as error:
            self._failure = error
        finally:
            for peer in self._peers.values():
                peer.socket.close()
                self._note_end(peer, "broker")
            stop_listening(self._listener)
            self._woken.close()
            self._selector.close()

    def _play(self) -> None:
        """Follow the transcript."""
        for event in self._events:
            while event.connection not in self._peers:
                self._wait_for(event)
            peer = self._peers[event.connection]
            match event:
                case Opened():
                    pass
                case Closed():
                    self._close(peer, event)
                case Octets():
                    self._write(peer, event)
                case SeenFrame(direction="sent"):
                    self._answer(peer, event)
                case SeenFrame():
                    self._compare(peer, event)

    def _give_up(self, differs: _DiffersError) -> None:
        """Record the fatal difference, send it to the client, and end all connections."""
        problem = str(differs)
        self.differences.append(problem)
        self._is_over = True
        if differs.peer is not None:
            error = Frame("ERROR", {"message": "not as in the transcript"}, problem.encode())
            with contextlib.suppress(_DiffersError):
                self._send(differs.peer, error)
        for peer in self._peers.values():
            self._close_writing(peer)

    def _stay(self) -> None:
        """Record events that the transcript does not have, until the server is stopped."""
        while True:
            try:
                for peer in self._peers.values():
                    self._expect_nothing(peer)
                    if peer.ended:
                        self._close_writing(peer)
                if self._stop_at is None:
                    self._take_in(None)
                elif monotonic() >= self._stop_at or not self._take_in(0):
                    return
            except _DiffersError as differs:
                if not self._is_over:
                    self._give_up(differs)

    def _wait_for(self, event: Event) -> None:
        """Process incoming data until an event can happen."""
        remaining_s = None if self._stop_at is None else self._stop_at - monotonic()
        late = remaining_s is not None and remaining_s <= 0
        if late or not self._take_in(remaining_s):
            raise _DiffersError(f"has not happened: {event}")

    def _take_in(self, timeout_s: float | None) -> bool:
        """Wait for connections and data, and process them; return False after the timeout."""
        ready = self._selector.select(timeout_s)
        for key, _ in ready:
            if key.fileobj is self._woken:
                self._woken.recv(1)
            elif key.fileobj is self._listener:
                self._accept()
            else:
                self._read(key.data)
        return bool(ready)

    def _accept(self) -> None:
        try:
            accepted = owned(self._listener.accept()[0])
        except OSError:
            return  # the client has given up in the meantime
        number = next((it for it in self._expected if it not in self._peers), None)
        if self._is_over or number is None:
            accepted.close()
            if not self._is_over:
                self.differences.append("one more connection than was recorded")
            return
        accepted.settimeout(self._timeout_s)
        peer = ReplayPeer(number, accepted, self._versions.get(number))
        self._peers[number] = peer
        self._selector.register(accepted, selectors.EVENT_READ, peer)
        self.frames.opened(number)

    def _read(self, peer: ReplayPeer) -> None:
        problem = None
        try:
            for frame in peer.receive():
                self.frames.record("received", peer.number, frame)
        except RemoteProtocolError as error:
            problem = f"#{peer.number} received what is no frame: {error}"
            peer.ended = True
        except OSError:
            peer.ended = True
        if peer.ended:
            self._selector.unregister(peer.socket)
            self._note_end(peer, "client")
        if problem is not None:
            raise _DiffersError(problem, peer)

    # Recorded events.

    def _compare(self, peer: ReplayPeer, event: SeenFrame) -> None:
        """Wait for a frame of a client, and compare it with the one in the transcript."""
        while not peer.arrived:
            if peer.ended:
                raise _DiffersError(f"the client has closed instead of: {event}")
            self._wait_for(event)
        frame = peer.arrived.pop(0)
        if frame.command != event.command:
            raise _DiffersError(f"wanted {event}, was {shown_frame(frame)}", peer)
        if frame.command == "DISCONNECT":
            self._leaving.add(peer.number)
        peer.ids.learn(event.frame, frame)
        wanted = peer.ids.translated(event.frame)
        where = f"#{peer.number} {frame.command}: "
        self.differences += [where + it for it in differences(wanted, frame, self._ignored)]
        asked, recorded = frame.headers.get("receipt"), event.headers.get("receipt")
        if asked is None and recorded is not None:
            self._unasked.add((peer.number, recorded))
        elif asked is not None and recorded is None:
            # The client must not wait for an answer only because it was not recorded.
            self._send(peer, Frame("RECEIPT", {"receipt-id": asked}))

    def _answer(self, peer: ReplayPeer, event: SeenFrame) -> None:
        """Send a frame of the broker, unless it answers a request that this client did not make."""
        if (peer.number, event.headers.get("receipt-id")) in self._unasked:
            return
        frame = peer.ids.translated(event.frame)
        if frame.command == "CONNECTED" and "heart-beat" in frame.headers:
            frame.headers["heart-beat"] = "0,0"
        elif frame.command == "ERROR":
            self._leaving.add(peer.number)
        self._send(peer, frame)

    def _close(self, peer: ReplayPeer, event: Closed) -> None:
        """End a connection, or wait for the client to end it, as recorded."""
        if event.by != "broker" and peer.number not in self._leaving:
            while not peer.ended:
                self._expect_nothing(peer)
                self._wait_for(event)
        self._close_writing(peer)

    def _expect_nothing(self, peer: ReplayPeer) -> None:
        """Record further frames as differences: the transcript does not have them."""
        arrived, peer.arrived = peer.arrived, []
        if arrived and not self._is_over:
            what = shown_frame(arrived[0])
            raise _DiffersError(f"#{peer.number} received what was not recorded: {what}", peer)

    # Sending.

    def _send(self, peer: ReplayPeer, frame: Frame) -> None:
        try:
            peer.send(frame)
        except OSError:
            what = f"#{peer.number} has closed, or does not read: {shown_frame(frame)}"
            raise _DiffersError(what) from None
        self.frames.record("sent", peer.number, frame)

    def _write(self, peer: ReplayPeer, event: Octets) -> None:
        with contextlib.suppress(OSError):
            peer.socket.sendall(event.octets)

    def _close_writing(self, peer: ReplayPeer) -> None:
        """Close the sending direction; the client may still read earlier data."""
        with contextlib.suppress(OSError):
            peer.socket.shutdown(socket.SHUT_WR)
        self._note_end(peer, "broker")

    def _note_end(self, peer: ReplayPeer, by: End) -> None:
        if peer.number not in self._ended:
            self._ended.add(peer.number)
            self.frames.closed(peer.number, by=by)
