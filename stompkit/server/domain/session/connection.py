"""One client of the broker: octets in and out, and the life of its session."""

from __future__ import annotations

import sys
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
    Version,
    refusal,
)
from stompkit.server.domain.broker import Broker
from stompkit.server.domain.destinations import Blocked, Destination
from stompkit.server.domain.errors import Refused
from stompkit.server.domain.messages import header_line
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.queues.references import MessageReference
from stompkit.server.domain.session.acks import PendingAcks
from stompkit.server.domain.session.handlers import HANDLERS, Handler
from stompkit.server.domain.session.subscriptions import Subscription
from stompkit.server.domain.session.transactions import Transaction
from stompkit.server.domain.topics import Topic
from stompkit.server.interfaces import Outlet, StoreError, StoreFull, User

__all__ = ["Connection"]

_T = TypeVar("_T")

_NO_RECEIPT = ("CONNECT", "STOMP")
#: The number of pieces in which a frame is emitted.
_PIECES = 3
#: Seconds that the frames of one client may take before others are served; the clock is looked at
#: after so many frames.
_TURN_S: Final = 0.01
_CHEAP_FRAMES: Final = 32
#: Frames that can take long themselves, and the seconds after which none of them is begun: a long
#: selector takes about 10 ms to be read.
_COSTLY_TURN_S: Final = 0.005
_COSTLY: Final = frozenset({"SUBSCRIBE", "UNSUBSCRIBE", "COMMIT"})


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection:
    """Turns what one client sends into calls of the broker, and answers it.

    It knows neither transport nor clock: octets come in by :meth:`receive` with the time, and go
    out through the ``outlet``. Its owner calls :meth:`Broker.flush` after each call. What each
    frame does is in :mod:`stompkit.server.domain.session.handlers`.
    """

    #: What the frame of each command does. A subclass can have a table of its own, for
    #: :class:`BrokerFactory` to use in place of this class.
    handlers: ClassVar[Mapping[str, Handler]] = HANDLERS

    def __init__(self, broker: Broker, outlet: Outlet, now: float) -> None:
        """Begin with nothing received."""
        config = broker.config
        self.broker = broker
        self.outlet = outlet
        self.id = broker.new_connection()
        self.connected_at = now
        self.peer = outlet.peer
        self.session = Session(
            Role.SERVER,
            now,
            heart_beat=config.heart_beat_ms,
            limits=config.limits,
            limits_before_login=config.limits_before_login,
            tolerance=config.effective_tolerance,
            eol=config.eol_after_frames,
        )
        #: Whether a line feed follows the NUL of each frame, and what ends a frame without a body.
        self.has_eol = config.eol_after_frames
        self.end_of_frame = b"\n\0\n" if self.has_eol else b"\n\0"
        self.version: Version = "1.0"
        self.ledger = PendingAcks("1.0")
        self.user = User()
        self.host = next(iter(broker.hosts.values()))
        self.client_id: str | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.transactions: dict[str, Transaction] = {}
        #: Messages of topics that wait for its subscriptions, a copy for each.
        self.backlog = 0
        #: Temporary destinations that end with the connection.
        self.temporaries: list[Destination] = []
        #: Why the connection was closed with an ERROR, once it has been.
        self.failure: RemoteProtocolError | None = None
        #: Whether messages can be written now; replies always can.
        self.has_room = True
        #: How many messages of queues may be delivered before one is acknowledged.
        self.is_limited = config.flow == "one-in-flight"
        self.slots = config.max_in_flight if self.is_limited else sys.maxsize
        #: Whether what an open transaction has acknowledged makes room for more.
        self.frees_in_transactions = True
        self.is_logged = broker.frame_log is not None or broker.frame_watch is not None
        self._does = self.handlers
        self._turns = 0
        self._out: list[bytes] = []
        self._out_bytes = 0
        #: The largest write of several frames, in bytes; 0 without a limit.
        self._largest_write_bytes = 0
        #: What is written at once has at least so many bytes, unless it is the rest of a turn.
        self._write_from_bytes = config.write_batch_bytes
        self._closing = False
        #: Units of the store that replies wait for, and the reply to DISCONNECT, if it does too.
        self._uncommitted = 0
        self._leaving: Frame | None = None
        #: While input is suspended: what has been read already, and the frame to be tried again.
        self._suspended = False
        self._held: list[Frame] = []
        self._unread: list[bytes] = []
        self._blocked: Frame | None = None
        self._blocked_by: Queue | Topic | None = None
        self._at_end = False

    # Input.

    def opened(self) -> None:
        """Begin; a client too many is told so and closed."""
        try:
            self.broker.connected(self)
        except Refused as refused:
            self.fail(refused.message, refused.code)

    def receive(self, data: bytes, now: float) -> None:
        """Take octets from the client."""
        self.broker.now = now
        if self._suspended:
            self.session.heart_beat.last_received = now
            self._unread.append(data)
            return
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        try:
            while frames := self.session.receive(data, self.broker.now):
                data = b""
                self._held = frames
                if not self._work():
                    return
        except RemoteProtocolError as error:
            self.refuse(error)

    def _work(self) -> bool:
        """Handle the frames that have been read; says whether more can be."""
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
        except Blocked as blocked:
            self._wait_for_room(frame, blocked)
            return
        except Refused as refused:
            self.fail(refused.message, refused.code, receipt=frame.headers.get("receipt"))
            return
        if not self._suspended:
            self._handled(frame)

    def _handled(self, frame: Frame) -> None:
        """Answer a frame, once its effect is safe."""
        receipt = frame.headers.get("receipt")
        if receipt is not None and frame.command in _NO_RECEIPT:
            receipt = None
        if self._leaving is not None:
            return
        journal = self.broker.journal
        if journal is not None and journal.cut(self, receipt):
            self._uncommitted += 1
            if self.broker.wait_for_store(self):
                self._suspend()
        elif receipt is not None:
            self._send_receipt(receipt)

    def did_part(self) -> None:
        """Have the answer to a frame wait until the store has kept this part of its effect, too."""
        journal = self.broker.journal
        if journal is not None and journal.cut(self):
            self._uncommitted += 1

    def committed(self, receipt: str | None, error: StoreError | None) -> None:
        """Answer a frame whose effect the store has kept, or has not."""
        self._uncommitted -= 1
        if error is not None:
            code = "store-full" if isinstance(error, StoreFull) else "store-failed"
            self.fail(f"the broker can't keep it: {error}", code, receipt=receipt)
        elif receipt is not None and not self._closing:
            self._send_receipt(receipt)
        if self._leaving is not None:
            self.leave(self._leaving)

    def _send_receipt(self, receipt: str) -> None:
        self.emit(b"RECEIPT\n", header_line("receipt-id", receipt, self.version), self.end_of_frame)
        if self.is_logged:
            self._log(">", Frame("RECEIPT", {"receipt-id": receipt}))

    def leave(self, frame: Frame) -> None:
        """End the session in good order; a receipt, if asked for, is the last frame."""
        if self._closing:
            return
        self._leaving = frame
        if self._uncommitted:
            return
        self._closing = True
        receipt = frame.headers.get("receipt")
        if receipt is not None:
            self._send_receipt(receipt)
        self._end()

    # Waiting.

    def ask(
        self,
        frame: Frame,
        start: Callable[[Callable[[_T], None]], None],
        then: Callable[[_T], None],
    ) -> None:
        """Go on with what a question is answered by, at once or later.

        ``start`` is given the function to answer with. Until it is called, nothing else of what
        the client sends is looked at. ``then`` may raise :class:`Refused`.
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
            except Blocked as blocked:
                self._wait_for_room(frame, blocked)
            except Refused as refused:
                self.fail(refused.message, refused.code, receipt=frame.headers.get("receipt"))
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

    def _wait_for_room(self, frame: Frame, blocked: Blocked) -> None:
        destination = blocked.destination
        if not isinstance(destination, Queue | Topic) or "transaction" in frame.headers:
            self.fail(blocked.message, blocked.code, receipt=frame.headers.get("receipt"))
            return
        self._blocked, self._blocked_by = frame, destination
        destination.blocked.append(self)
        self._suspend()

    def try_again(self) -> bool:
        """Handle the frame that has waited for room; says whether there was some."""
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
        """The frame that waits for room, which it does no more."""
        frame, self._blocked, self._blocked_by = self._blocked, None, None
        return frame

    def _take_turns(self, most_s: float) -> None:
        """Have the rest wait until others were served, if all this has taken so many seconds."""
        if self._suspended or self._closing:
            return
        broker = self.broker
        if broker.clock.seconds() - broker.now > most_s:
            self._suspend()
            broker.later(0.0, self.go_on)

    def _suspend(self) -> None:
        if not self._suspended:
            self._suspended = True
            self.outlet.pause()

    def go_on(self) -> None:
        """Go on after having waited for the store."""
        if self._suspended and not self._closing:
            self._suspended = False
            self._go_on()

    def _go_on(self) -> None:
        """Look at what was read meanwhile, and read on."""
        if not self._work():
            return
        self._feed(b"")
        while self._unread and not (self._suspended or self._closing):
            self._feed(self._unread.pop(0))
        if not (self._suspended or self._closing):
            self.outlet.resume()
            if self._at_end:
                self.ended(self.broker.now)

    # Time.

    @property
    def has_input_waiting(self) -> bool:
        """Return whether something that the client has sent waits to be handled."""
        return bool(self._held or self._unread or self._blocked is not None or self._has_unread)

    @property
    def _has_unread(self) -> bool:
        # An outlet without this attribute hands over everything at once.
        return bool(getattr(self.outlet, "has_unread", False))

    def on_deadline(self, now: float) -> None:
        """Send a heart-beat that is due, or give up a client that has been silent too long."""
        self.broker.now = now
        beat = self.session.heart_beat
        if not self.outlet.is_reading or self._has_unread:
            # Either nobody knows whether it has been silent, or it has not.
            beat.last_received = now
        if beat.is_dead(now):
            seconds = beat.receive_s * beat.tolerance
            self.fail(f"nothing received for {seconds:.1f} seconds", "heart-beat-timeout")
        elif beat.must_send(now):
            beat.last_sent = now
            self.outlet.write(b"\n")

    def next_deadline(self) -> float | None:
        """The time at which :meth:`on_deadline` has to be called next, if at all."""
        return None if self._closing else self.session.heart_beat.next_deadline()

    # The end.

    def ended(self, now: float) -> None:
        """Note that the client sends no more; what it has sent is still answered."""
        self.broker.now = now
        if self._closing or self._leaving is not None:
            return
        if self._suspended:
            # It can wait: what it has sent is not done yet.
            self._at_end = True
            return
        state = self.session.state
        try:
            self.session.receive_eof()
        except RemoteProtocolError as error:
            self.session.state = state
            self.refuse(error)
            return
        # Only one direction is closed: the other one has room for an ERROR, of what it has sent.
        self.session.state = state
        # As if it had said DISCONNECT, without a receipt.
        self.release()
        self.leave(Frame("DISCONNECT"))

    def lost(self) -> None:
        """Note the end of the stream: what was not settled goes back to its destination."""
        self.broker.now = self.broker.clock.seconds()
        self._closing = True
        self.release()
        self.broker.disconnected(self)

    @property
    def is_logged_in(self) -> bool:
        """Whether CONNECT has been answered by CONNECTED."""
        return self.session.state not in (State.OPENING, State.CONNECTING)

    @property
    def is_closing(self) -> bool:
        """Whether nothing that the client sends is looked at any more."""
        return self._closing

    # Output.

    def set_writable(self, writable: bool, now: float) -> None:  # noqa: FBT001 (a state, not a choice)
        """Note whether the transport takes more octets; messages wait while it does not."""
        self.broker.now = now
        self.has_room = writable and not self._closing
        if not self.has_room or not self.subscriptions:
            return
        self.feed()

    def pull(self) -> None:
        """Take what the free slots allow, from one queue after the other."""
        while self.slots > 0 and self.has_room:
            # Those in the mode auto take no slots; they get theirs like everybody's.
            waiting = [
                each for each in self.subscriptions.values() if each.waiting and not each.is_auto
            ]
            waiting.sort(key=lambda each: each.turn)
            if not any(map(self._pull_from, waiting)):
                return

    @staticmethod
    def _pull_from(subscription: Subscription) -> bool:
        waiting = subscription.waiting
        for _ in range(len(waiting)):
            queue = next(iter(waiting), None)
            if queue is None:
                break
            # It comes back as the last one if there is more in it.
            del waiting[queue]
            if queue.serve(subscription):
                return True
        return False

    def served(self, subscription: Subscription) -> None:
        """Note that a subscription has had its turn."""
        self._turns += 1
        subscription.turn = self._turns

    def emit(self, head: bytes, lines: bytes = b"", tail: bytes = b"") -> None:
        """Write octets at the end of the turn, or as soon as there are enough for a write."""
        out = self._out
        if not out:
            self.broker.wrote(self)
        out.append(head)
        out.append(lines)
        out.append(tail)
        self._out_bytes += len(head) + len(lines) + len(tail)
        if self._out_bytes >= self._write_from_bytes:
            if self._out_bytes > self._largest_write_bytes > 0:
                self._write_without_last()
            else:
                self.write_out()

    def limit_writes(self, limit_bytes: int) -> None:
        """Write several frames at once only if they have at most this many bytes together."""
        self._largest_write_bytes = limit_bytes
        self._write_from_bytes = limit_bytes or self.broker.config.write_batch_bytes

    def _write_without_last(self) -> None:
        """Write what was emitted, the last frame apart from the others."""
        last = self._out[-_PIECES:]
        del self._out[-_PIECES:]
        self.write_out()
        self._out += last
        self._out_bytes = sum(map(len, last))
        if self._out_bytes >= self._largest_write_bytes:
            self.write_out()

    def write_out(self) -> None:
        """Write what was emitted."""
        if self._out:
            data = b"".join(self._out)
            self._out.clear()
            self._out_bytes = 0
            self.session.heart_beat.last_sent = self.broker.now
            self.outlet.write(data)

    def fail(self, message: str, code: str, *, receipt: str | None = None) -> None:
        """Send ERROR and close (1.2, "ERROR")."""
        self.refuse(refusal(message, code, receipt=receipt))

    def refuse(self, error: RemoteProtocolError) -> None:
        """Close, with the ERROR frame that is the error's reply, if it has one."""
        if self._closing:
            return
        self._closing = True
        self.failure = error
        if error.reply is not None:
            if self.is_logged:
                self._log(">", error.reply)
            try:
                self.emit(self.session.send(error.reply, self.broker.now))
            except LocalProtocolError:
                # What the client sent can't be repeated to it: say less.
                headers = {"message": "malformed frame", "stompkit-code": error.code}
                self.emit(self.session.send(Frame("ERROR", headers), self.broker.now))
        self._end()

    def _end(self) -> None:
        """Write what is left, close, and give everything back."""
        self.release()
        self.write_out()
        self.outlet.close()

    def release(self) -> None:
        """Abort transactions, end subscriptions, return what is unsettled."""
        self.has_room = False
        for transaction in self.transactions.values():
            self.end_transaction(transaction)
        self.transactions.clear()
        for subscription in self.subscriptions.values():
            self.remove(subscription)
        self.subscriptions.clear()
        if self._blocked_by is not None:
            self._blocked_by.blocked.remove(self)
            self.broker.has_room(self._blocked_by)
            self.broker.touch(self._blocked_by)
            self._blocked = self._blocked_by = None
        # What is held is being settled, which goes on: all transactions have ended.
        left = [each for each in self.ledger.clear() if each.holder is None]
        self.broker.give_back(left)
        for temporary in self.temporaries:
            self.host.discard(temporary)
        self.temporaries.clear()

    # What handlers share.

    def include(self, key: str, subscription: Subscription) -> None:
        """Take a new subscription in."""
        self.subscriptions[key] = subscription

    def remove(self, subscription: Subscription) -> None:
        """End a subscription; what it has delivered of queues can still be acknowledged."""
        # Unsettled deliveries keep the subscription, and should not keep what it never delivered.
        subscription.drop_backlog()
        if subscription.pattern is not None:
            self.host.unsubscribe_pattern(subscription)
        else:
            for home in list(subscription.homes):
                home.remove(subscription)
                self.broker.touch(home)
        # Nobody else will get the copy of a topic's message, so nothing depends on its ACK.
        first = next(iter(subscription.unsettled.values()), None)
        was_full = self.ledger.is_full
        if first is not None and not first.home.is_queue:
            for entry in list(subscription.unsettled.values()):
                if entry.holder is None:
                    self.ledger.lapse(entry)
        if was_full and not self.ledger.is_full and self.has_room:
            self.feed()

    def feed(self) -> None:
        """Have all subscriptions given what they can take by now, at the end of the turn."""
        # Another one is first each time, so that a busy destination does not keep the rest from
        # being written.
        first = next(iter(self.subscriptions), None)
        if first is not None:
            self.subscriptions[first] = self.subscriptions.pop(first)
        for subscription in self.subscriptions.values():
            self.broker.feed(subscription)
        self.broker.pull(self)

    def drop_from_longest_backlog(self) -> None:
        """Drop the oldest message of the subscription for which the most wait."""
        longest = max(self.subscriptions.values(), key=lambda each: len(each.backlog))
        if longest.backlog:
            longest.drop_oldest()

    def end_transaction(self, transaction: Transaction) -> None:
        """Give up what a transaction holds, for ABORT or ahead of COMMIT."""
        transaction.release()
        self.stop_timer(transaction)

    def stop_timer(self, transaction: Transaction) -> None:
        """Let a transaction be open for as long as it takes."""
        if transaction.timer is not None:
            self.broker.cancel(transaction.timer)
            transaction.timer = None

    def log_connected(self, headers: dict[str, str]) -> None:
        """Log the CONNECTED frame that has gone out with these headers."""
        self._log(">", Frame("CONNECTED", {"version": str(self.version)} | headers))

    def log_message(self, subscription: Subscription, entry: MessageReference) -> None:
        """Log a MESSAGE frame; its body is not logged."""
        headers = {"subscription": subscription.id or "", "message-id": entry.message.id}
        self._log(">", Frame("MESSAGE", headers | entry.message.headers))

    def _log(self, direction: str, frame: Frame) -> None:
        log = self.broker.frame_log
        if log is not None:
            log(direction, self.peer, frame)
        watch = self.broker.frame_watch
        if watch is not None:
            watch(direction, self.peer, frame)
