"""Random invalid sessions, which are the same for the same seed."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from stompkit.conformance.robustness import Bystander, comes_back, settle
from stompkit.conformance.shrinking import shrink_pieces
from stompkit.conformance.target import Target, is_alive
from stompkit.conformance.verdict import FailedError, UnsupportedError
from stompkit.conformance.wire.octets import frame_octets

__all__ = ["Transcript", "fuzz", "transcript"]

#: Number of simultaneous sessions.
_BATCH: Final = 20
#: Number of earlier batches that may have caused a failure seen now: slow targets process them
#: late.
_BATCHES_BEFORE: Final = 2
#: Time in seconds for the sessions of a batch to end after the last byte.
_ENDING_S: Final = 0.2
#: The same for a suspected session: a slow target may need longer before it fails.
_SUSPECT_ENDING_S: Final = 2.0
#: Maximum average time in seconds per session, before their number is reduced.
_SESSION_S: Final = 0.025
#: Maximum time in seconds for finding the harmful session and its harmful part.
_SHRINKING_S: Final = 30.0
_SHOWN_CHARACTERS: Final = 400

_NUMBERS: Final = (
    b"-1", b"0", b"1", b"00", b"+1", b"1.5", b"1e9", b"0x10", b"", b" ", b"x", b"1,1", b"-1,-1",
    b"255", b"256", b"65535", b"65536", b"2147483647", b"2147483648", b"-2147483648",
    b"4294967295", b"4294967296", b"9223372036854775807", b"9223372036854775808",
    b"-9223372036854775809", b"18446744073709551616", b"9" * 100,
)  # fmt: skip
_NASTY: Final = (
    b"\0", b"\0\0\0", b"\n", b"\n\n", b"\r", b"\r\n", b":", b"::", b"\\", b"\\n", b"\\t", b" ",
    b"\t", b"\x1b", b"\x7f", b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
    b"\xe2\x82", b"\xef\xbb\xbf", b"%s%n", b"{}", b"<!--", b"'\"", b"SEND\n", b"\n\n\0",
    b"content-length:5\n",
)  # fmt: skip
_NUMBERED: Final = (b"content-length", b"heart-beat", b"prefetch-count", b"priority", b"expires")


@dataclass(frozen=True, slots=True)
class Transcript:
    """The bytes of a session, each piece sent in a separate write."""

    #: True if a valid CONNECT precedes it.
    logs_in: bool
    pieces: tuple[bytes, ...]

    def __str__(self) -> str:
        """Return a printable form of the session."""
        said = " ".join(map(repr, self.pieces)) or "nothing"
        cut = f"... ({sum(map(len, self.pieces)):,} octets)"
        shown = said if len(said) <= _SHOWN_CHARACTERS else said[:_SHOWN_CHARACTERS] + cut
        return f"{'after' if self.logs_in else 'instead of'} CONNECT: {shown}"


#: Sessions by their numbers.
_Numbered = dict[int, Transcript]


# Generating sessions.


def transcript(seed: int, number: int, queue: str) -> Transcript:
    """Return one of the sessions of a seed; ``queue`` is the destination it uses.

    Another destination gives the same session only if its name has the same length.
    """
    random = Random(f"{seed} {number}")
    logs_in = random.random() < 0.8
    frames = _session(random, queue)
    if not logs_in:
        connect = {"accept-version": "1.0,1.1,1.2", "host": "localhost", "heart-beat": "0,0"}
        frames.insert(0, frame_octets("CONNECT", connect))
    for _ in range(random.randint(1, 4)):
        random.choice(_MUTATIONS)(random, frames)
    pieces = _chopped(random, b"".join(frames)) if random.random() < 0.4 else frames
    return Transcript(logs_in, tuple(pieces))


def _session(random: Random, queue: str) -> list[bytes]:
    """Return frames that are mostly valid."""
    subscription = {"destination": queue, "id": "s", "ack": "client-individual"}
    message = {"destination": queue, "receipt": "r", "h": "a:b"}
    choices: list[tuple[str, dict[str, str], bytes]] = [
        ("SUBSCRIBE", subscription, b""),
        ("SEND", message, b"body with \0 in it"),
        ("SEND", {**message, "content-length": "4"}, b"body"),
        ("SEND", {"destination": queue, "content-type": "text/plain"}, b""),
        ("BEGIN", {"transaction": "t"}, b""),
        ("SEND", {"destination": queue, "transaction": "t"}, b"x" * 100),
        ("COMMIT", {"transaction": "t", "receipt": "c"}, b""),
        ("ABORT", {"transaction": "t"}, b""),
        ("ACK", {"id": "1", "message-id": "1", "subscription": "s"}, b""),
        ("NACK", {"id": "1", "message-id": "1", "subscription": "s"}, b""),
        ("UNSUBSCRIBE", {"id": "s", "destination": queue}, b""),
        ("DISCONNECT", {"receipt": "d"}, b""),
    ]
    return [frame_octets(*random.choice(choices)) for _ in range(random.randint(1, 6))]


def _flip(random: Random, frames: list[bytes]) -> None:
    """Flip some bits of a byte."""
    which, at = _somewhere(random, frames)
    octets = bytearray(frames[which])
    if octets:
        octets[at % len(octets)] ^= random.randint(1, 255)
        frames[which] = bytes(octets)


def _insert(random: Random, frames: list[bytes]) -> None:
    """Insert bytes that have a meaning for a parser."""
    which, at = _somewhere(random, frames)
    frames[which] = frames[which][:at] + random.choice(_NASTY) + frames[which][at:]


def _delete(random: Random, frames: list[bytes]) -> None:
    """Delete some bytes."""
    which, at = _somewhere(random, frames)
    frames[which] = frames[which][:at] + frames[which][at + random.randint(1, 20) :]


def _repeat(random: Random, frames: list[bytes]) -> None:
    """Repeat some bytes many times."""
    which, at = _somewhere(random, frames)
    end = at + random.randint(1, 20)
    often = frames[which][at:end] * random.choice((2, 10, 100, 2_000))
    frames[which] = frames[which][:at] + often + frames[which][end:]


def _truncate(random: Random, frames: list[bytes]) -> None:
    """Cut off the end of a frame."""
    which, at = _somewhere(random, frames)
    frames[which] = frames[which][:at]


def _duplicate(random: Random, frames: list[bytes]) -> None:
    """Send a frame twice."""
    which, _ = _somewhere(random, frames)
    frames.insert(which, frames[which])


def _swap(random: Random, frames: list[bytes]) -> None:
    """Swap two frames."""
    one, _ = _somewhere(random, frames)
    other, _ = _somewhere(random, frames)
    frames[one], frames[other] = frames[other], frames[one]


def _count(random: Random, frames: list[bytes]) -> None:
    """Replace a number by a wrong one."""
    which, _ = _somewhere(random, frames)
    command, eol, rest = frames[which].partition(b"\n")
    line = b"%b:%b\n" % (random.choice(_NUMBERED), random.choice(_NUMBERS))
    frames[which] = command + eol + line + rest


def _somewhere(random: Random, frames: Sequence[bytes]) -> tuple[int, int]:
    which = random.randrange(len(frames))
    return which, random.randint(0, len(frames[which]))


_MUTATIONS: Final[tuple[Callable[[Random, list[bytes]], None], ...]] = (
    _flip, _insert, _delete, _repeat, _truncate, _duplicate, _swap, _count, _count,
)  # fmt: skip


def _chopped(random: Random, octets: bytes) -> list[bytes]:
    """Split the bytes into pieces, independent of frames."""
    cuts = sorted(random.randint(0, len(octets)) for _ in range(random.randint(0, 8)))
    places = [0, *cuts, len(octets)]
    return [octets[a:b] for a, b in itertools.pairwise(places) if a < b]


# Running sessions.


def fuzz(target: Target) -> None:
    """Run the number of sessions of the seed that the target's address gives.

    Raises :class:`FailedError` if one of them ends or stops other sessions, with its smallest part
    that does so. For that search, a target that has died is restarted if possible.
    """
    seed, count = target.address.seed, target.address.fuzz_sessions
    if not count:
        raise UnsupportedError("no sessions are wanted: --fuzz 0")
    seconds = count * _SESSION_S
    target.extend_deadline(seconds + _SHRINKING_S)
    until = time.monotonic() + seconds
    queue = target.queue()
    bystander = Bystander(target)
    tried = 0
    before: deque[_Numbered] = deque(maxlen=_BATCHES_BEFORE)
    while tried < count and time.monotonic() < until:
        numbers = range(tried, min(tried + _BATCH, count))
        batch = {number: transcript(seed, number, queue) for number in numbers}
        try:
            _play(target, list(batch.values()), _ENDING_S)
            bystander.check("them")
            target.connect().close()
        except FailedError as error:
            _explain(target, seed, batch, before, error)
        before.appendleft(batch)
        tried = numbers[-1] + 1
    target.note(f"{tried} sessions of seed {seed}: --seed {seed} --fuzz {tried} makes the same")


def _play(target: Target, transcripts: Sequence[Transcript], ending_s: float) -> None:
    """Run sessions simultaneously; raises :class:`FailedError` if none can be opened."""
    peers = []
    for each in transcripts:
        peer = target.connect() if each.logs_in else target.open()
        peers.append(peer)
        for piece in each.pieces:
            # The target may stop reading from this client.
            with contextlib.suppress(FailedError):
                peer.send_raw(piece)
        # The target has read everything when it sees the end.
        peer.finish_sending()
    settle(peers, lambda peer: False, ending_s)
    for peer in peers:
        peer.close()


class _Harm:
    """Determines whether a session harms the target, within a time limit."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._until = time.monotonic() + _SHRINKING_S
        #: True if the target cannot be restarted.
        self.is_over = False
        self.reason = ""

    def is_done_by(self, each: Transcript) -> bool:
        """Return True if, after this session, another session ends or no new one can be opened."""
        bystander = self._bystander()
        if bystander is None:
            return False
        try:
            _play(self._target, [each], _SUSPECT_ENDING_S)
            bystander.check("it")
            self._target.connect().close()
        except FailedError as error:
            self.reason = str(error)
            return True
        return False

    def _bystander(self) -> Bystander | None:
        """Return a session that could suffer, unless the time is up or the target has gone."""
        while not self.is_over and time.monotonic() < self._until and self.revive():
            # The effects of the last session may not be over yet.
            with contextlib.suppress(FailedError):
                return Bystander(self._target)
        return None

    def revive(self) -> bool:
        """Return True if the target answers, after a restart if necessary."""
        if is_alive(self._target.address, self._target.version):
            return True
        try:
            self._target.restart()
        except UnsupportedError:
            self.is_over = not comes_back(self._target)
        except FailedError:
            self.is_over = True
        return not self.is_over


def _explain(
    target: Target, seed: int, batch: _Numbered, before: Iterable[_Numbered], error: FailedError
) -> None:
    """Find the harmful session and its harmful part; raises :class:`FailedError` with them."""
    harm = _Harm(target)
    suspects = itertools.chain(batch.items(), *(each.items() for each in before))
    for number, each in suspects:
        if harm.is_done_by(each):
            smallest = _shrunk(each, harm)
            target.recorder.say(0, f"the smallest part that does it, {smallest}")
            target.note(f"session {number} of seed {seed}, {each}")
            harm.revive()
            raise FailedError(f"{harm.reason}; session {number} of seed {seed} does it, {smallest}")
    for number, each in batch.items():
        target.note(f"session {number}, {each}")
    alone = "the target does not come back" if harm.is_over else "none of them does it alone"
    first, last = min(batch), max(batch)
    raise FailedError(f"sessions {first} to {last} of seed {seed}: {error}; {alone}")


def _shrunk(whole: Transcript, harm: _Harm) -> Transcript:
    """Return the smallest part of a session that does harm."""
    pieces = shrink_pieces(
        whole.pieces, lambda pieces: harm.is_done_by(Transcript(whole.logs_in, pieces))
    )
    stranger = Transcript(logs_in=False, pieces=pieces)
    return stranger if harm.is_done_by(stranger) else Transcript(whole.logs_in, pieces)
