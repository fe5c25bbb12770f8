"""Session of a client: its frames in order, waits, heart-beats and the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, TypeVar

from mypy_extensions import mypyc_attr

from stompkit.frames import (
    Frame,
    LocalProtocolError,
    RemoteProtocolError,
    Role,
    Session,
    State,
    refusal,
)
from stompkit.server.domain.broker import Broker
from stompkit.server.domain.deliveries import MessageReference, Subscription
from stompkit.server.domain.destinations import BlockedError
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.header_lines import header_line
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.session.stored_replies import ReplyingSession
from stompkit.server.domain.topics import Topic
from stompkit.server.interfaces import Outlet

__all__ = ["ClientSession"]

_T = TypeVar("_T")
_NO_RECEIPT = ("CONNECT", "STOMP")
#: Maximum time in seconds for the frames of one client before others are served, and number of
#: frames between two checks of the clock.
_TURN_S: Final = 0.01
_CHEAP_FRAMES: Final = 32
#: Expensive frames, and the time in seconds after which no further one is started. A long selector
#: takes about 10 ms to parse.
_COSTLY_TURN_S: Final = 0.005
_COSTLY: Final = frozenset({"SUBSCRIBE", "UNSUBSCRIBE", "COMMIT"})


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientSession(ReplyingSession):
    """Translates frames of one client into calls of the broker, and replies to it.

    It is independent of transport and clock: bytes enter by :meth:`receive` with the time, and
    leave through the ``outlet``. Its owner calls :meth:`Broker.flush` after each call. The effects
    of frames are in :mod:`stompkit.server.domain.session.handlers`.
    """

    #: Handlers by command, which get the session and the frame.
    handlers: ClassVar[Mapping[str, Callable[..., None]]] = {}

    def __init__(self, broker: Broker, outlet: Outlet, now: float) -> None:
        """Start before any input."""
        super().__init__(broker, outlet, now)
        config = broker.config
        self.session = Session(
            Role.SERVER,
            now,
            heart_beat=config.heart_beat_ms,
            limits=config.limits,
            limits_before_login=config.limits_before_login,
            tolerance=config.effective_tolerance,
            eol=config.eol_after_frames,
        )
        self.version = "1.0"
        self.has_eol = config.eol_after_frames
        self.end_of_frame = b"\n\0\n" if self.has_eol else b"\n\0"
        self.is_logged = broker.frame_log is not None or broker.frame_watch is not None
        self._does = self.handlers
        #: True while input is suspended; the frames already read follow.
        self._suspended = False
        self._held: list[Frame] = []
        self._unread: list[bytes] = []
        #: The frame that waits for room in a destination.
        self._blocked: Frame | None = None

    @property
    def protocol(self) -> str:
        """The version of STOMP."""
        return self.version

    @property
    def is_logged_in(self) -> bool:
        """True if CONNECT has been answered with CONNECTED."""
        return self.session.state not in (State.OPENING, State.CONNECTING)

    @property
    def is_login_pending(self) -> bool:
        """True if CONNECT or STOMP has arrived and is not answered yet."""
        return self.session.state is State.CONNECTING

    # Input.

    @property
    def missing_bytes(self) -> int:
        """Number of bytes that complete the frame being received; 0 if that is unknown."""
        return self.session.missing_bytes

    def receive(self, data: bytes, now: float) -> None:
        """Process bytes from the client."""
        self.scheduler.start_cycle(now)
        if self._suspended:
            self.session.heart_beat.last_received = now
            self._unread.append(data)
            return
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        try:
            while frames := self.session.receive(data, self.scheduler.now):
                data = b""
                self._held = frames
                if not self._work():
                    return
        except RemoteProtocolError as error:
            self._refuse_in_turn(error)

    def _work(self) -> bool:
        """Handle the frames that have been read; return True if more can be read."""
        held, self._held = self._held, []
        for start in range(0, len(held), _CHEAP_FRAMES):
            if start:
                self._take_turns(_TURN_S)
            frames = iter(held[start : start + _CHEAP_FRAMES])
            for frame in frames:
                if self._closing or self._suspended:
                    self._held = [frame, *frames, *held[start + _CHEAP_FRAMES :]]
                    return False
                self._handle(frame)
                if frame.command in _COSTLY:
                    self._take_turns(_COSTLY_TURN_S)
        return not (self._closing or self._suspended)

    def _handle(self, frame: Frame) -> None:
        if self.is_logged:
            self._log("<", frame)
        try:
            self._does[frame.command](self, frame)
        except BlockedError as blocked:
            self._wait_for_room(frame, blocked)
            return
        except RefusedError as refused:
            self._refuse_frame(frame, refused)
            return
        if not self._suspended:
            self._handled(frame)

    def _handled(self, frame: Frame) -> None:
        """Reply to a frame, once its effect is stored."""
        receipt = frame.get("receipt")
        if receipt is not None and frame.command in _NO_RECEIPT:
            receipt = None
        if self._leaving is not None:
            return
        if self.scheduler.commit_queue.cut(self, receipt):
            self._uncommitted += 1
            if self.scheduler.wait_for_store(self):
                self._suspend()
        elif receipt is not None:
            self._send_receipt(receipt)

    # Waiting.

    def ask(
        self,
        frame: Frame,
        start: Callable[[Callable[[_T], None]], None],
        then: Callable[[_T], None],
    ) -> None:
        """Suspend input until a question is answered, and continue with the answer.

        ``start`` is called with the function that takes the answer, at once or later. Until then no
        other input is processed. ``then`` may raise :class:`RefusedError`.
        """
        answers: list[_T] = []

        def answer(value: _T) -> None:
            if not waiting:
                answers.append(value)
                return
            if self._closing:
                return
            self._suspended = False
            try:
                then(value)
            except BlockedError as blocked:
                self._wait_for_room(frame, blocked)
            except RefusedError as refused:
                self._refuse_frame(frame, refused)
            else:
                if not self._suspended:
                    self._handled(frame)
            self._go_on()
            self.broker.flush()

        waiting = False
        start(answer)
        if answers:
            then(answers[0])
        else:
            waiting = True
            self._suspend()

    def _wait_for_room(self, frame: Frame, blocked: BlockedError) -> None:
        destination = blocked.destination
        if not isinstance(destination, Queue | Topic) or "transaction" in frame.headers:
            self._refuse_frame(frame, blocked)
            return
        self._blocked = frame
        self._wait_for(destination)
        self._suspend()

    def try_again(self) -> bool:
        """Handle the frame that has waited for room; return False if there is still none."""
        frame = self._unblocked()
        if frame is None or self._closing:
            return True
        self._suspended = False
        self._handle(frame)
        if self._blocked is not None:
            return False
        self._go_on()
        return True

    def _unblocked(self) -> Frame | None:
        """Return the blocked frame, and stop its wait."""
        frame, self._blocked, self._blocked_by = self._blocked, None, None
        return frame

    def _take_turns(self, most_s: float) -> None:
        """Suspend input until others are served, if this cycle took more than *most_s* seconds."""
        if self._suspended or self._closing:
            return
        broker = self.broker
        if broker.scheduler.clock.seconds() - broker.scheduler.now > most_s:
            self._suspend()
            broker.scheduler.later(0.0, self.go_on)

    def _suspend(self) -> None:
        if not self._suspended:
            self._suspended = True
            self.outlet.pause()

    def go_on(self) -> None:
        """Resume after a wait for the store."""
        if self._suspended and not self._closing:
            self._suspended = False
            self._go_on()

    def _go_on(self) -> None:
        """Process the frames read meanwhile, and resume reading."""
        if not self._work():
            return
        self._feed(b"")
        while self._unread and not (self._suspended or self._closing):
            self._feed(self._unread.pop(0))
        if not (self._suspended or self._closing):
            self.outlet.resume()
            if self._at_end:
                self.ended(self.scheduler.now)

    # Timers.

    @property
    def has_input_waiting(self) -> bool:
        """Return True if input of the client waits to be processed."""
        return bool(self._held or self._unread or self._blocked is not None or self._has_unread)

    def on_deadline(self, now: float) -> None:
        """Send a heart-beat that is due, or close the connection of a silent client."""
        self.scheduler.start_cycle(now)
        beat = self.session.heart_beat
        if not self.outlet.is_reading or self._has_unread:
            # Either it is unknown if the client was silent, or it was not.
            beat.last_received = now
        if beat.is_dead(now):
            seconds = beat.receive_s * beat.tolerance
            self.fail(f"nothing received for {seconds:.1f} seconds", "heart-beat-timeout")
        elif beat.must_send(now):
            beat.last_sent = now
            self.outlet.write(b"\n")

    def next_deadline(self) -> float | None:
        """Return the time of the next call of :meth:`on_deadline`, or None."""
        return None if self._closing else self.session.heart_beat.next_deadline()

    # Closing.

    def ended(self, now: float) -> None:
        """Record that the client sends no more; frames already received are still answered."""
        self.scheduler.start_cycle(now)
        if self._closing or self._leaving is not None:
            return
        if self._suspended:
            # It can wait: frames already received are not processed yet.
            self._at_end = True
            return
        state = self.session.state
        try:
            self.session.receive_eof()
        except RemoteProtocolError as error:
            self.session.state = state
            self._refuse_in_turn(error)
            return
        # Only one direction is closed: the other one can still carry an ERROR for those frames.
        self.session.state = state
        # Treated as a DISCONNECT without a receipt.
        self.release()
        self.leave(Frame("DISCONNECT"))

    def release(self) -> None:
        """Abort transactions, end subscriptions, and return unsettled messages."""
        super().release()
        self._blocked = None

    def fail(self, message: str, code: str, *, receipt: str | None = None) -> None:
        """Send ERROR and close (1.2, "ERROR")."""
        self.refuse(refusal(message, code, receipt=receipt))

    def _refuse_frame(self, frame: Frame, refused: RefusedError) -> None:
        headers = frame.headers
        self.refused_destination = headers.get("destination", "")
        if frame.command in _NO_RECEIPT:
            self.claimed_user = headers.get("login", "")
        message, code, receipt = refused.message, refused.code, headers.get("receipt")
        self._in_turn(lambda: self.fail(message, code, receipt=receipt))

    def _refuse_in_turn(self, error: RemoteProtocolError) -> None:
        self._in_turn(lambda: self.refuse(error))

    def _tell(self, error: RemoteProtocolError) -> None:
        """Write the ERROR frame of the error, if it has one."""
        if error.reply is None:
            return
        if self.is_logged:
            self._log(">", error.reply)
        try:
            self.emit(self.session.send(error.reply, self.scheduler.now))
        except LocalProtocolError:
            # The input cannot be quoted in the reply: use a shorter message.
            headers = {"message": "malformed frame", "stompkit-code": error.code}
            self.emit(self.session.send(Frame("ERROR", headers), self.scheduler.now))

    # Output.

    def write_out(self) -> None:
        """Write the output, which is as good as a heart-beat."""
        if self._out:
            self.session.heart_beat.last_sent = self.scheduler.now
            super().write_out()

    def _send_receipt(self, receipt: str) -> None:
        self.emit(b"RECEIPT\n", header_line("receipt-id", receipt, self.version), self.end_of_frame)
        if self.is_logged:
            self._log(">", Frame("RECEIPT", {"receipt-id": receipt}))

    def log_connected(self, headers: dict[str, str]) -> None:
        """Log the CONNECTED frame sent with these headers."""
        self._log(">", Frame("CONNECTED", {"version": str(self.version)} | headers))

    def log_message(self, subscription: Subscription, entry: MessageReference) -> None:
        """Log a MESSAGE frame without its body."""
        headers = {"subscription": subscription.id or "", "message-id": entry.message.id}
        self._log(">", Frame("MESSAGE", headers | entry.message.headers))

    def _log(self, direction: str, frame: Frame) -> None:
        for log in (self.broker.frame_log, self.broker.frame_watch):
            if log is not None:
                log(direction, self.address, frame)
