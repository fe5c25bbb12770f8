"""One direction of a connection without a socket: takes bytes, applies rules, returns passages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from stompkit.frames import Frame
from stompkit.testing.frames.log import FrameLog
from stompkit.testing.frames.matching import Direction
from stompkit.testing.proxy.pieces import Piece, Reader, Splitter
from stompkit.testing.proxy.rules import Ending, Injection, Passage, Rule

__all__ = ["RuleFilter"]

_SETTLE_VERSION: Final = (b"CONNECT", b"STOMP")


class RuleFilter:
    """One direction of a connection: takes bytes, applies rules and hands passages on.

    While no rule depends on frame boundaries, bytes are handed on as they come. They are parsed
    afterwards, or before if there is a log, so that the log contains each frame before its receiver
    gets it.
    """

    def __init__(
        self,
        direction: Direction,
        connection: int,
        reader: Reader,
        *,
        seed: int,
        log: FrameLog | None,
        out: Callable[[Passage], None],
        inject: Callable[[Injection], None],
        struck: Callable[[Rule], None],
    ) -> None:
        """Start without rules; ``out``, ``inject`` and ``struck`` are called with the results."""
        self._direction: Direction = direction
        self._connection = connection
        self._reader = reader
        self._seed = seed
        self._log = log
        self._out = out
        self._inject = inject
        self._struck = struck
        self._splitter = Splitter()
        self._ahead = 0  # number of pending bytes in the splitter already handed on
        self._rules: list[Rule] = []
        self._is_raw = True
        self._randoms: dict[Rule, Random] = {}
        self._overtaken: list[Passage] = []  # frames waiting to be overtaken
        self._held: list[Passage] = []
        self._struck_last: set[Rule] = set()  # rules that acted on the last piece
        #: Number of bytes held back by rules.
        self.kept_bytes = 0
        self._is_over = False  # a fault has ended the connection
        self._between: list[bytes] = []  # injections waiting for the end of the frame

    def change(self, rules: Iterable[Rule]) -> None:
        """Apply these rules from now on; data that only other rules held is handed on."""
        self._rules = [rule for rule in rules if rule.concerns(self._direction, self._connection)]
        self._randoms = {rule: r for rule, r in self._randoms.items() if rule in self._rules}
        held, self._held = self._held, []
        for passage in (*held, *self._overtaken):
            passage.keep_effects_of(self._rules)
        # Those without ``behind`` wait for nothing any more.
        self._release_due()
        for passage in held:
            self.kept_bytes -= len(passage.octets)
            self._dispatch(passage)
        # Last: the pending data came after all that.
        self._choose_mode()

    def feed(self, octets: bytes) -> None:
        """Process bytes."""
        if self._is_over:
            return
        if not self._is_raw:
            for piece in self._splitter.feed(octets):
                if not self._is_over:
                    self._take(piece)
            if self._splitter.is_lost:
                self._flush()
            self._choose_mode()
            return
        if self._log is None:
            self._through(octets)
        for piece in self._splitter.feed(octets):
            self._read(piece)
        if self._log is not None:
            self._through(octets)
        self._ahead = self._splitter.pending_bytes

    def finish(self, ending: Ending) -> None:
        """Process the end of the stream, which is handed on after all bytes."""
        if self._is_over:
            return
        self._flush()
        self._release_overtaken()
        end = Passage(b"", ending=ending)
        for rule in self._rules:
            if rule.about == "octets" and rule.act is not None:
                rule.act(end, rule, self.random(rule))
        for passage in self._held:
            end.holders |= passage.holders
        self._dispatch(end)

    def inject(self, octets: bytes) -> None:
        """Hand injected bytes on, once no frame is in progress."""
        if self._ahead and not self._splitter.is_lost:
            self._between.append(octets)
            self._choose_mode()
        else:
            self._out(Passage(octets))

    def _choose_mode(self) -> None:
        was_raw = self._is_raw
        self._is_raw = not self._between and all(rule.about == "octets" for rule in self._rules)
        if self._is_raw and not was_raw:
            self._flush()

    def _flush(self) -> None:
        """Hand pending bytes on."""
        if self._is_over:
            return
        pending = self._splitter.pending[self._ahead :]
        self._ahead = self._splitter.pending_bytes
        if pending:
            self._through(pending)

    def _take(self, piece: Piece) -> None:
        """Process one piece while there are rules about pieces."""
        frame = self._read(piece)
        octets = piece.octets[self._ahead :]
        if self._ahead:  # it began before the rules were added
            frame = None
        self._ahead = 0
        if octets:
            # A line feed that many brokers send after each frame.
            is_tail = not (piece.is_frame or piece.is_beat) and not octets.strip(b"\r\n")
            self._through(octets, frame, is_beat=piece.is_beat, is_tail=is_tail)
        if self._between:
            between, self._between = self._between, []
            for each in between:
                self._out(Passage(each))

    def _read(self, piece: Piece) -> Frame | None:
        """Record a piece in the log, and return its frame if a rule needs it."""
        log = self._log
        if piece.is_beat:
            if log is not None:
                log.beat(self._direction, self._connection)
            return None
        frame = None
        if piece.is_frame and not self._splitter.is_lost:
            if log is None and self._is_raw and not piece.octets.startswith(_SETTLE_VERSION):
                return None
            frame = self._reader.read(self._direction, piece.octets)
            if frame is None:
                self._splitter.lose()
        if log is not None and frame is not None:
            log.record(self._direction, self._connection, frame)
        elif log is not None and self._splitter.is_lost:
            log.undecodable(self._direction, self._connection, piece.octets)
        return frame

    def _through(
        self,
        octets: bytes,
        frame: Frame | None = None,
        *,
        is_beat: bool = False,
        is_tail: bool = False,
    ) -> None:
        """Apply the rules to bytes, and hand the result on.

        The tail of a frame meets the same rules as the frame, which count the two as one.
        """
        passage = Passage(octets, is_frame=frame is not None)
        struck = self._struck_last if is_tail else set()
        for rule in self._rules:
            is_meant = rule.takes(self._direction, self._connection, frame, is_beat=is_beat)
            if not is_meant or rule.act is None:
                continue
            random = self.random(rule)
            # A frame that overtakes another one is not held: otherwise none would ever overtake it.
            may_strike = all(rule is not other.behind_rule for other in self._overtaken)
            if rule in struck if is_tail else rule.strikes(random, may_strike=may_strike):
                rule.act(passage, rule, random)
                if not is_tail:
                    self._struck(rule)
                    struck.add(rule)
                if passage.is_over:
                    self._is_over = passage.ending is not None
                    break
        self._struck_last = struck
        self._dispatch(passage)

    def random(self, rule: Rule) -> Random:
        """Return the random numbers of one rule in this lane, independent of other traffic."""
        if rule not in self._randoms:
            place = f"{self._seed}/{rule.number}/{self._connection}/{self._direction}"
            self._randoms[rule] = Random(place)
        return self._randoms[rule]

    def _dispatch(self, passage: Passage) -> None:
        if passage.holders:
            self._held.append(passage)
            self.kept_bytes += len(passage.octets)
        elif passage.behind:
            self._overtaken.append(passage)
            self.kept_bytes += len(passage.octets)
        else:
            if passage.ending is not None and passage.ended_by is None:
                # The sender has closed: frames that were held may still wait to be overtaken.
                self._release_overtaken()
            self._send(passage)
            if passage.is_frame and passage.octets:
                self._count_overtaking()

    def _count_overtaking(self) -> None:
        for passage in self._overtaken:
            passage.behind -= 1
        self._release_due()

    def _release_due(self) -> None:
        due = [passage for passage in self._overtaken if not passage.behind]
        self._overtaken = [passage for passage in self._overtaken if passage.behind]
        for passage in due:
            self._release(passage)

    def _release_overtaken(self) -> None:
        overtaken, self._overtaken = self._overtaken, []
        for passage in overtaken:
            self._release(passage)

    def _release(self, passage: Passage) -> None:
        self.kept_bytes -= len(passage.octets)
        self._send(passage)

    def _send(self, passage: Passage) -> None:
        self._out(passage)
        for injection in passage.injections:
            self._inject(injection)
