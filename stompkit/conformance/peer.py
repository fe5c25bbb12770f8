"""A client for raw data: one connection to the target, with a timeout on every wait."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from select import POLLIN
from typing import Final

from stompkit.conformance.verdict import Ending, FailedError, Outcome, UnsupportedError
from stompkit.conformance.wire.octets import (
    Headers,
    describe,
    difference,
    frame_octets,
    header,
    plain,
    raw_value,
)
from stompkit.conformance.wire.recorder import Recorder
from stompkit.conformance.wire.rules import MUST_CLOSE, Requests, broken_rules, of_grammar, spoken
from stompkit.conformance.wire.stream import Stream
from stompkit.conformance.wire.uses import Uses
from stompkit.frames import Frame

__all__ = [
    "Headers",
    "Outcome",
    "Peer",
    "Recorder",
    "describe",
    "frame_octets",
    "is_within",
    "raw_value",
]

#: The commands of which a transaction may consist.
_WITHIN_TRANSACTIONS: Final = ("SEND", "ACK", "NACK")
#: The last frame that begins in a piece of the wire log.
_BEGUN: Final = re.compile(r".*(?:^|\^@)\s*([A-Z]+\n.*)", re.DOTALL)
#: Maximum number of characters shown of an incomplete frame.
_SHOWN_CHARACTERS: Final = 200


def is_within(command: str, headers: Mapping[str, str]) -> bool:
    """Return True if a frame is part of a transaction, and neither begins nor ends it."""
    return command in _WITHIN_TRANSACTIONS and "transaction" in headers


class Peer(Stream):
    """One TCP connection to the target, with the operations of cases."""

    #: True if the target supports ACK and NACK; otherwise a case that sends one is UNSUPPORTED.
    has_ack = True
    #: A queue of this connection, for a target without receipts: a message that has returned from
    #: it proves that all earlier frames were processed.
    barrier: str | None = None
    #: Record of what the case relies on, if there is one.
    uses: Uses | None = None

    _receipts = 0
    _transactions = 0
    _barriers = 0

    @cached_property
    def requests(self) -> Requests:
        """Receipts and modes that this connection has asked for by whole frames."""
        return Requests()

    @property
    def is_open(self) -> bool:
        """True if neither side has closed the connection."""
        return not self._is_over and not self._is_given_up

    @property
    def is_turned_away(self) -> bool:
        """True if the target has refused the session or the connection, instead of CONNECTED."""
        if self.frames:
            return self.frames[0].command == "ERROR"
        return self._is_over

    @property
    def is_refused(self) -> bool:
        """True if the target has sent an ERROR or closed the connection."""
        return self._is_over or any(frame.command == "ERROR" for frame in self.frames)

    # Sending.

    def send(
        self, command: str, headers: Headers = (), body: bytes = b"", *, length: bool = True
    ) -> None:
        """Send one frame, escaped by the rules of the session's version.

        Raises :class:`UnsupportedError` for an acknowledgement that the target does not support.
        """
        if command in ("ACK", "NACK") and not self.has_ack:
            raise UnsupportedError("the target does not know ACK: --no-ack")
        self.requests.note(command, headers)
        if self.uses is not None:
            self.uses.note(self._number, command, headers)
        self.send_raw(frame_octets(command, headers, body, version=self.version, length=length))

    def call(
        self, command: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        """Send a frame and wait until the target has processed it: by a receipt, if possible.

        The RECEIPT of a frame within a transaction may have to wait for COMMIT: for such a frame,
        wait by BEGIN of another one. That stays open: some targets forget acknowledgements of all
        transactions when one is aborted.
        """
        if self.barrier is not None:
            self.send(command, headers or {}, body)
            if command == "DISCONNECT":
                self.expect_close()
            else:
                self._pass(self.barrier)
            return
        if is_within(command, headers or {}):
            self.send(command, headers or {}, body)
            self.call("BEGIN", {"transaction": self.new_transaction()})
            return
        receipt = self.new_receipt()
        self.send(command, {**(headers or {}), "receipt": receipt}, body)
        self.expect_receipt(receipt)

    def _pass(self, queue: str) -> None:
        """Wait until a message that this connection sends to itself has come back."""
        if not self._barriers:
            self.send("SUBSCRIBE", {"destination": queue, "id": "barrier"})
        self._barriers += 1
        body = b"barrier %d" % self._barriers
        self.send("SEND", {"destination": queue}, body)

        def is_it(frame: Frame) -> bool:
            return frame.command == "MESSAGE" and frame.body == body

        self._take(is_it, "a message to itself", fail_on_error=True)

    def new_receipt(self) -> str:
        """Return a receipt id that this connection has not used."""
        self._receipts += 1
        return f"r{self._number}-{self._receipts}"

    def new_transaction(self) -> str:
        """Return the name of a transaction that this connection has not used.

        It is disputed whether the name of a transaction that has ended can be used again.
        """
        self._transactions += 1
        return f"t{self._number}-{self._transactions}"

    # Receiving.

    def expect(self, command: str, headers: Mapping[str, str] | None = None) -> Frame:
        """Wait for a frame with this command and these headers, and take it from the inbox.

        Other frames stay there. An unexpected ERROR fails immediately.
        """
        wanted = headers or {}

        def is_it(frame: Frame) -> bool:
            return frame.command == command and all(
                frame.headers.get(name) == value for name, value in wanted.items()
            )

        what = command + (f" with {dict(wanted)}" if wanted else "")
        return self._take(is_it, what, fail_on_error=command != "ERROR", near=(command, wanted))

    def expect_receipt(self, receipt: str) -> Frame:
        """Wait for the RECEIPT of a frame.

        Raises :class:`UnsupportedError` if the target does not answer receipts.
        """
        if self.barrier is not None:
            raise UnsupportedError("the target answers no receipts: --no-receipts")
        return self.expect("RECEIPT", {"receipt-id": receipt})

    def expect_messages(self, number: int) -> list[Frame]:
        """Wait for *number* MESSAGE frames."""
        return [self.expect("MESSAGE") for _ in range(number)]

    def gather_messages(self, number: int, timeout_s: float | None = None) -> list[Frame]:
        """Return up to *number* MESSAGE frames, waiting up to the timeout for each."""
        frames: list[Frame] = []
        while len(frames) < number:
            frame = self._wait(lambda frame: frame.command == "MESSAGE", timeout_s)
            if frame is None:
                break
            frames.append(frame)
        return frames

    def expect_refusal(self, receipt: str) -> Frame | None:
        """Wait for an ERROR, or for the end of the connection, instead of a RECEIPT.

        Returns the ERROR frame, or ``None`` if the target closed without one.
        """

        def is_answer(frame: Frame) -> bool:
            return frame.command == "ERROR" or frame.headers.get("receipt-id") == receipt

        frame = self._wait(is_answer, None)
        if frame is not None and frame.command != "ERROR":
            sent = self._sent_with(receipt)
            raise FailedError(f"the frame was accepted: {self.describe(frame)} answers {sent!r}")
        if frame is None and not self._is_over:
            self._hang("neither ERROR nor the end of the connection came")
        return frame

    def expect_answer(self, receipt: str) -> Frame:
        """Wait for a RECEIPT or an ERROR."""

        def is_answer(frame: Frame) -> bool:
            return frame.command == "ERROR" or frame.headers.get("receipt-id") == receipt

        return self._take(is_answer, "RECEIPT or ERROR", fail_on_error=False)

    def acknowledge(
        self, message: Frame, *, command: str = "ACK", transaction: str | None = None
    ) -> None:
        """Send ACK or NACK of a MESSAGE, as the version requires, and wait as :meth:`call` does.

        Raises :class:`UnsupportedError` if the MESSAGE has no ack header on 1.2: the case
        message/ack-header tests that.
        """
        if self.version == "1.2":
            if "ack" not in message.headers:
                raise UnsupportedError("the target's MESSAGE has no ack header")
            headers = {"id": header(message, "ack")}
        else:
            headers = {"message-id": header(message, "message-id")}
            if self.version == "1.1":
                headers["subscription"] = header(message, "subscription")
        if transaction is not None:
            headers["transaction"] = transaction
        self.call(command, headers)

    def outcome(self, receipt: str | None, linger_s: float) -> Outcome:
        """Wait for the outcome of a frame: RECEIPT (or CONNECTED without one) or a refusal.

        ``linger_s`` is the time in seconds for the target to close the connection after an ERROR.
        The absence of an answer is an outcome, too: this is for cases that record the target's
        behaviour.
        """

        def is_answer(frame: Frame) -> bool:
            if receipt is None:
                return frame.command in ("CONNECTED", "ERROR")
            return frame.command == "ERROR" or frame.headers.get("receipt-id") == receipt

        frame = self._wait(is_answer, None)
        if frame is None and self._is_over:
            return Outcome.CLOSE
        if frame is None:
            self.ending = Ending.HUNG
            return Outcome.NOTHING
        if frame.command != "ERROR":
            return Outcome.ACCEPTED
        self._wait(lambda frame: False, linger_s)
        return Outcome.ERROR_AND_CLOSE if self._is_over else Outcome.ERROR

    def expect_beat(self, timeout_s: float) -> None:
        """Wait for a line end between frames; frames go to the inbox meanwhile."""
        seen = self.eols
        until = self._until(timeout_s)
        while self.eols == seen:
            left = until - time.monotonic()
            if self._is_over:
                raise FailedError(
                    "the target closed the connection instead of sending a heart-beat"
                )
            if left <= 0:
                self._hang(f"no heart-beat came for {timeout_s:.1f} seconds")
            if self._poll(POLLIN, left):
                self._read()

    def expect_close(self, timeout_s: float | None = None) -> None:
        """Wait until the target closes the connection; frames go to the inbox meanwhile."""
        self._wait(lambda frame: False, timeout_s)
        if not self._is_over:
            self._hang("the target does not close the connection")

    def expect_nothing(self, seconds: float, command: str = "MESSAGE") -> None:
        """Fail if a frame with this command arrives within the time."""
        frame = self._wait(lambda frame: frame.command == command, seconds)
        if frame is not None:
            raise FailedError(f"unexpected {self.describe(frame)}")

    def collect(self, seconds: float) -> list[Frame]:
        """Return all frames in the inbox and those that arrive within the time."""
        self._wait(lambda frame: False, seconds)
        frames, self.inbox = self.inbox, []
        return frames

    def broken_rules(self, *, with_grammar: bool, with_close: bool) -> dict[str, str]:
        """Return the statements that the frames of the session violate, with the observations.

        ``with_close`` takes time: a target that has sent ERROR on 1.2 has to close the connection.
        """
        version = spoken(self.frames, self.version)
        if version is None:
            return {}
        known = self.requests if self.requests.frames == self._pieces else None
        found = dict(broken_rules(self.frames, version, known, self.describe))
        if self.violation and with_grammar:
            rule, text = of_grammar(version, self.violation, self.violation_code)
            found[rule] = text
        error = next((frame for frame in self.frames if frame.command == "ERROR"), None)
        has_to_close = with_close and version == "1.2"
        if has_to_close and error is not None and self._stays_open():
            found[MUST_CLOSE] = f"after {self.describe(error)} the connection stays open"
        return found

    def describe(self, frame: Frame) -> str:
        """Return a frame in a few words, for a reason, with the passcode masked."""
        return describe(frame, self._recorder.hide)

    def _stays_open(self) -> bool:
        """Return True if the target had time to close the connection, and has not done so."""
        if self._is_given_up:
            return False
        try:
            self._wait(lambda frame: False, None)
        except (FailedError, UnsupportedError):
            return False  # it sends what cannot be read, or the case has no time left
        return not self._is_over

    def _sent_with(self, receipt: str) -> str:
        """Return the last frame that was sent with a receipt, as the wire log shows it."""
        for event in reversed(self._recorder.events):
            if (event.connection, event.direction) == (self._number, ">"):
                for sent in reversed(event.text.split("^@")):
                    if f"receipt:{receipt}" in sent:
                        return " ".join(sent.split())
        return f"the frame with the receipt {receipt}"

    def _instead(self, near: tuple[str, Mapping[str, str]]) -> str:
        """Return how what came differs from an awaited frame, as the end of a sentence."""
        if self._lenient.pending_bytes:
            return f", only a part of a frame: {self._last_words()}"
        command, wanted = near
        for frame in reversed(self.inbox):
            if frame.command == command:
                differences = (
                    difference(name, frame.headers.get(name), wanted[name], self._recorder.hide)
                    for name in wanted
                )
                return f", only {self.describe(frame)}: {'; '.join(filter(None, differences))}"
        return ""

    def _last_words(self) -> str:
        """Return the frame that the target has begun last, as the wire log shows it."""
        events = (
            event.text
            for event in reversed(self._recorder.events)
            if (event.connection, event.direction) == (self._number, "<")
        )
        text = next(events, "")
        begun = _BEGUN.search(text)
        missing = self._lenient.missing_bytes
        rest = f"; {missing} octets of its body are missing" if missing else ""
        return plain(begun[1] if begun else text, _SHOWN_CHARACTERS) + rest

    def _take(
        self,
        is_it: Callable[[Frame], bool],
        what: str,
        *,
        fail_on_error: bool,
        near: tuple[str, Mapping[str, str]] = ("", {}),
    ) -> Frame:
        def ends(frame: Frame) -> bool:
            return is_it(frame) or (fail_on_error and frame.command == "ERROR")

        frame = self._wait(ends, None)
        if frame is not None and is_it(frame):
            return frame
        if frame is not None:
            raise FailedError(f"expected {what}, got {self.describe(frame)}")
        if self._is_over:
            raise FailedError(f"expected {what}, but the target closed the connection")
        self._hang(f"expected {what}, but nothing like it came{self._instead(near)}")
