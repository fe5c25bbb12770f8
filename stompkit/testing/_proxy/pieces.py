"""A stream of octets in pieces that faults act on, without a socket: cut, broken, handed on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final, NamedTuple

from stompkit.frames import (
    AFTER_LOGIN,
    COMMANDS,
    VERSIONS,
    Frame,
    FrameDecoder,
    RemoteProtocolError,
    Tolerance,
    Version,
)
from stompkit.testing._frames.log import FrameLog
from stompkit.testing._frames.matching import Direction
from stompkit.testing._proxy.faults import Ending, Injection, Passage, Rule

__all__ = ["Lane", "Piece", "Reader", "Splitter"]

_LF: Final = 10
_CR: Final = 13
_NUL: Final = 0
_COMMANDS: Final = tuple(name.encode() for name in COMMANDS)
_LONGEST_COMMAND: Final = max(map(len, _COMMANDS))
#: The first one counts (1.2, "Repeated Header Entries"); 1.0 may have blanks around both parts.
_CONTENT_LENGTH: Final = re.compile(rb"\n[ \t]*content-length[ \t]*:[ \t]*([0-9]{1,19})[ \t\r]*\n")
#: What a head may have, all lines together: no broker takes more.
_MOST_HEAD_BYTES: Final = 1024 * 1024
#: Between frames: one too many, as some peers send.
_NULS: Final = re.compile(rb"\0+")
_SETTLE_VERSION: Final = (b"CONNECT", b"STOMP")


class Piece(NamedTuple):
    """Octets that belong together: a frame, the end of a line between frames, or the rest."""

    octets: bytes
    """The octets, exactly as they came."""
    is_frame: bool = False
    """Whether they are a frame, from its command to its NUL."""
    is_beat: bool = False
    """Whether they are an end of line between frames: a heart-beat, mostly."""


class _NoFrame(Exception):
    """What stands where a frame should is none."""


class Splitter:
    """Cuts one direction of a connection into pieces, whose octets are those that came.

    A frame is cut off when it is complete; until then its octets are pending. What can't be the
    beginning of a frame ends that: it is the rest, and so is all that follows. So is a frame that
    is larger than what our own decoder takes, which bounds what is pending.
    """

    def __init__(self) -> None:
        """Start where a frame may begin."""
        self._pending = bytearray()
        self._is_lost = False
        self._forget_progress()

    def _forget_progress(self) -> None:
        self._searched = 0  # octets of the frame that have been searched for what comes next
        self._body_start = 0  # where its body begins; 0 while its head is not complete
        self._need = 0  # its size; 0 while that is not known

    @property
    def pending(self) -> bytes:
        """The beginning of a frame that is not complete."""
        return bytes(self._pending)

    @property
    def pending_bytes(self) -> int:
        """How many octets are pending."""
        return len(self._pending)

    @property
    def is_lost(self) -> bool:
        """Whether frames have given way to something else."""
        return self._is_lost

    def lose(self) -> None:
        """Take all that follows, and what is pending, for the rest."""
        self._is_lost = True

    def feed(self, octets: bytes) -> list[Piece]:
        """Take octets and return the pieces that are complete with them."""
        pieces: list[Piece] = []
        start = 0
        self._pending += octets
        try:
            while start < len(self._pending) and not self._is_lost:
                end = self._end_of_eol(start)
                if end:
                    pieces.append(Piece(bytes(self._pending[start:end]), is_beat=True))
                elif nuls := _NULS.match(self._pending, start):
                    end = nuls.end()
                    pieces.append(Piece(bytes(nuls[0])))
                else:
                    end = self._end_of_frame(start)
                    if not end:
                        break
                    pieces.append(Piece(bytes(self._pending[start:end]), is_frame=True))
                self._forget_progress()
                start = end
        except _NoFrame:
            self._is_lost = True
        if self._is_lost:
            pieces += [Piece(rest)] if (rest := bytes(self._pending[start:])) else []
            start = len(self._pending)
        del self._pending[:start]
        return pieces

    def _end_of_eol(self, start: int) -> int:
        """Where an end of line ends that begins at ``start``; 0 for none, or not yet."""
        octet = self._pending[start]
        if octet == _LF:
            return start + 1
        if octet == _CR and self._pending[start + 1 : start + 2] == b"\n":
            return start + 2
        return 0

    def _end_of_frame(self, start: int) -> int:
        """Where the frame ends that begins at ``start``; 0 while it is not complete."""
        pending = self._pending
        if not self._need and not self._body_start:
            self._find_body(start)
        if not self._need and self._body_start:
            nul = pending.find(b"\0", start + max(self._body_start, self._searched))
            self._searched = len(pending) - start
            self._need = nul + 1 - start if nul >= 0 else 0
        if max(self._need, self._searched) > AFTER_LOGIN.max_frame_bytes:
            raise _NoFrame
        end = start + self._need
        if not self._need or len(pending) < end:
            return 0
        if pending[end - 1] != _NUL:
            raise _NoFrame
        return end

    def _find_body(self, start: int) -> None:
        """Look for the blank line, and for the size of the body."""
        pending = self._pending
        self._check_command(start)
        begin = start + max(self._searched - 2, 0)  # a blank line may have begun there
        nul = pending.find(b"\0", start + self._searched)
        limit = nul if nul >= 0 else len(pending)
        gap = pending.find(b"\n\n", begin, limit)
        after = gap + 2
        other = pending.find(b"\n\r\n", begin, limit if gap < 0 else gap + 1)
        if other >= 0:
            gap, after = other, other + 3
        if gap >= 0:
            declared = _CONTENT_LENGTH.search(pending, start, gap + 1)
            self._body_start = self._searched = after - start
            if declared is not None:
                self._need = self._body_start + int(declared[1]) + 1
        elif nul >= 0:
            # Without a blank line, as in the DISCONNECT example of the 1.2 specification.
            self._need = nul + 1 - start
        else:
            self._searched = len(pending) - start
            if self._searched > _MOST_HEAD_BYTES:
                raise _NoFrame

    def _check_command(self, start: int) -> None:
        """Make sure that a frame may begin at ``start``."""
        line, end, _ = self._pending[start : start + _LONGEST_COMMAND + 2].partition(b"\n")
        command = bytes(line).removesuffix(b"\r")
        if command not in _COMMANDS and (
            end or not any(name.startswith(command) for name in _COMMANDS)
        ):
            raise _NoFrame


class Reader:
    """Reads the frames of one connection, by the rules of the version that it turns out to have."""

    def __init__(self) -> None:
        """Start before CONNECT."""
        #: What CONNECTED says, or before it the best that CONNECT offers.
        self.version: Version = "1.2"
        self._decoders: dict[Direction, FrameDecoder] = {
            direction: FrameDecoder(limits=AFTER_LOGIN, tolerance=Tolerance.LENIENT)
            for direction in ("received", "sent")
        }

    def read(self, direction: Direction, octets: bytes) -> Frame | None:
        """Read one whole frame; ``None`` for what is none."""
        decoder = self._decoders[direction]
        try:
            frames = decoder.feed(octets)
        except RemoteProtocolError:
            return None
        if len(frames) != 1 or decoder.pending_bytes:
            return None
        frame = frames[0]
        if frame.command in ("CONNECT", "STOMP"):
            offered = frame.headers.get("accept-version", "1.0").replace(" ", "").split(",")
            self._settle([v for v in VERSIONS if v in offered], "received")
        elif frame.command == "CONNECTED":
            said = frame.headers.get("version", "1.0")
            self._settle([v for v in VERSIONS if v == said], "received", "sent")
        return frame

    def _settle(self, versions: Sequence[Version], *directions: Direction) -> None:
        self.version = versions[-1] if versions else self.version
        for direction in directions:
            self._decoders[direction].negotiated(self.version, AFTER_LOGIN)


class Lane:
    """One direction of a connection: takes octets, lets rules act on them, hands passages on.

    While no rule needs to know where frames begin and end, octets are handed on as they come, and
    read afterwards, or before if there is a log: whoever gets a frame finds it in there.
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
        """Begin without rules; ``out`` and ``inject`` do what comes of them, ``struck`` is told."""
        self._direction: Direction = direction
        self._connection = connection
        self._reader = reader
        self._seed = seed
        self._log = log
        self._out = out
        self._inject = inject
        self._struck = struck
        self._splitter = Splitter()
        self._ahead = 0  # octets that are pending in the splitter, but have been handed on
        self._rules: list[Rule] = []
        self._is_raw = True
        self._randoms: dict[Rule, Random] = {}
        self._overtaken: list[Passage] = []  # frames that let others pass
        self._held: list[Passage] = []
        #: How many octets are kept back by rules.
        self.kept_bytes = 0
        self._is_over = False  # a fault has ended the connection
        self._between: list[bytes] = []  # to be put in where the frame ends that is under way

    def change(self, rules: Iterable[Rule]) -> None:
        """Go on with these rules; what only others held is handed on."""
        self._rules = [rule for rule in rules if rule.concerns(self._direction, self._connection)]
        self._randoms = {rule: r for rule, r in self._randoms.items() if rule in self._rules}
        held, self._held = self._held, []
        for passage in held:
            self.kept_bytes -= len(passage.octets)
            passage.holders.intersection_update(self._rules)
            self._dispatch(passage)
        overtaken, self._overtaken = self._overtaken, []
        for passage in overtaken:
            if passage.behind_rule in self._rules:
                self._overtaken.append(passage)
            else:
                self._release(passage)
        # Last: what is pending came after all that.
        self._choose_mode()

    def feed(self, octets: bytes) -> None:
        """Take octets."""
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
        """Take the end of the stream, which is handed on behind all octets."""
        if self._is_over:
            return
        self._flush()
        overtaken, self._overtaken = self._overtaken, []
        for passage in overtaken:
            self._release(passage)
        end = Passage(b"", ending=ending)
        for rule in self._rules:
            if rule.about == "octets" and rule.act is not None:
                rule.act(end, rule, self.random(rule))
        for passage in self._held:
            end.holders |= passage.holders
        self._dispatch(end)

    def inject(self, octets: bytes) -> None:
        """Hand octets on that nobody sent, where no frame is under way."""
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
        """Hand on what is pending."""
        if self._is_over:
            return
        pending = self._splitter.pending[self._ahead :]
        self._ahead = self._splitter.pending_bytes
        if pending:
            self._through(pending)

    def _take(self, piece: Piece) -> None:
        """Take one piece while there are rules about pieces."""
        frame = self._read(piece)
        octets = piece.octets[self._ahead :]
        if self._ahead:  # it began before the rules
            frame = None
        self._ahead = 0
        if octets:
            self._through(octets, frame, is_beat=piece.is_beat)
        if self._between:
            between, self._between = self._between, []
            for each in between:
                self._out(Passage(each))

    def _read(self, piece: Piece) -> Frame | None:
        """Note a piece in the log, and return its frame if that is of interest."""
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

    def _through(self, octets: bytes, frame: Frame | None = None, *, is_beat: bool = False) -> None:
        """Let the rules act on octets, and hand on what becomes of them."""
        passage = Passage(octets, is_frame=frame is not None)
        for rule in self._rules:
            is_meant = rule.takes(self._direction, self._connection, frame, is_beat=is_beat)
            if not is_meant or rule.act is None:
                continue
            random = self.random(rule)
            # What overtakes a frame is not held up itself, or nothing would ever overtake it.
            may_strike = all(rule is not other.behind_rule for other in self._overtaken)
            if rule.strikes(random, may_strike=may_strike):
                rule.act(passage, rule, random)
                self._struck(rule)
                if passage.is_over:
                    self._is_over = passage.ending is not None
                    break
        self._dispatch(passage)

    def random(self, rule: Rule) -> Random:
        """The numbers of one rule in this lane, which no other traffic has an influence on."""
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
            self._send(passage)
            if passage.is_frame and passage.octets:
                self._count_overtaking()

    def _count_overtaking(self) -> None:
        for passage in self._overtaken:
            passage.behind -= 1
        due = [passage for passage in self._overtaken if not passage.behind]
        self._overtaken = [passage for passage in self._overtaken if passage.behind]
        for passage in due:
            self._release(passage)

    def _release(self, passage: Passage) -> None:
        self.kept_bytes -= len(passage.octets)
        self._send(passage)

    def _send(self, passage: Passage) -> None:
        self._out(passage)
        for injection in passage.injections:
            self._inject(injection)
