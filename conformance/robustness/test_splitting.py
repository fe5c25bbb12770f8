"""What is one frame stays one, however the network cuts it."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from stompkit.conformance import Peer, Target, UnsupportedError, frame_octets, trial
from stompkit.conformance.robustness import NEIGHBOURS, STREAM, Bystander, need_receipts, settle

STATEMENT: Final = "Where the octets of a session are cut on their way does not matter."
SECTION: Final = "Robustness: splitting"

BODY: Final = "a\0b\n\nSEND\n\n\u20ac".encode() + b"\0"
VALUE: Final = "a:b\\c\nd \u20ac\U0001f600"
#: The pause that keeps two pieces apart, in seconds: for all connections of a batch, and between
#: two octets.
PAUSE_S: Final = 0.03
OCTET_S: Final = 0.001
#: How many connections have their pauses together.
BATCH: Final = 25
#: How many frames the target has sent in all when it has answered a part of a session.
ANSWERS: Final = (1, 4, 5)

Reply = tuple[str, str, bytes]


class Session:
    """A session with escapes, UTF-8 and NUL, and, in 1.2, lines that end in CR LF.

    It is said in parts, for each of which it waits for the answers.
    """

    def __init__(self, target: Target) -> None:
        """Open the connection."""
        self.peer = target.open()
        version = target.version
        queue = target.queue()
        subscribe = {"destination": queue, "id": "s1", "receipt": "subscribed"}
        value = VALUE if version != "1.0" else "\u20ac"
        send = {"destination": queue, "h": value, "receipt": "sent"}
        eol = "\r\n" if version == "1.2" else "\n"
        self.parts = (
            frame_octets("CONNECT", target.connect_headers(), version=version),
            frame_octets("SUBSCRIBE", subscribe, version=version, eol=eol)
            + frame_octets("SEND", send, BODY, version=version),
            frame_octets("DISCONNECT", {"receipt": "bye"}, version=version),
        )

    def pieces(self, part: int, cut: int) -> tuple[bytes, bytes]:
        """A part, in two if the session is to be cut within it after so many octets."""
        octets = self.parts[part]
        place = cut - sum(map(len, self.parts[:part]))
        return (octets[:place], octets[place:]) if 0 < place < len(octets) else (octets, b"")

    def replies(self) -> list[Reply]:
        """What the target has said, less what differs between sessions."""
        return sorted(
            (
                frame.command,
                frame.headers.get("receipt-id") or frame.headers.get("h") or "",
                frame.body,
            )
            for frame in self.peer.frames
        )

    def cut_at(self, cut: int) -> str:
        """Where it was cut, and what came of that."""
        octets = b"".join(self.parts)
        return self.describe(f"cut between {octets[:cut][-10:]!r} and {octets[cut:][:10]!r}")

    def describe(self, how: str) -> str:
        """What the session that was sent in this way got."""
        got = ", ".join(command for command, _, _ in self.replies()) or "nothing"
        end = ", then the end" if self.peer.is_closed_by_target else ""
        return f"{how} it gets {got}{end}"


def has_said(frames: int) -> Callable[[Peer], bool]:
    """Whether so many frames have come."""
    return lambda peer: len(peer.frames) >= frames


def run(target: Target, cuts: Sequence[int]) -> list[Session]:
    """Go through a session for each cut, all at the same time; 0 cuts nowhere."""
    sessions = [Session(target) for _ in cuts]
    going_on = list(zip(sessions, cuts, strict=True))
    for part, answers in enumerate(ANSWERS):
        rests = []
        for session, cut in going_on:
            piece, rest = session.pieces(part, cut)
            session.peer.send_raw(piece)
            if rest:
                rests.append((session, rest))
        if rests:
            time.sleep(PAUSE_S)
        for session, rest in rests:
            session.peer.send_raw(rest)
        is_answered = has_said(answers)
        settle([session.peer for session, _ in going_on], is_answered, target.timeout_s)
        # Who waits for an answer in vain would do so each time.
        going_on = [pair for pair in going_on if is_answered(pair[0].peer)]
    for session in sessions:
        session.peer.close()
    return sessions


def whole(target: Target) -> tuple[list[Reply], int]:
    """The replies to a session that is not cut, and its length."""
    need_receipts(target)
    (session,) = run(target, [0])
    if len(session.peer.frames) != ANSWERS[-1]:
        raise UnsupportedError(
            "the target does not answer all frames of a session from CONNECT to DISCONNECT:"
            f" {session.describe('sent whole')}"
        )
    return session.replies(), sum(map(len, session.parts))


@trial(
    "robustness/splitting/every-octet",
    STATEMENT,
    level="MUST",
    section=SECTION,
    rests_on=(*STREAM, *NEIGHBOURS),
)
def test_split_at_every_octet(target: Target) -> None:
    """Cut a session after every octet, once each; the replies are those to the whole session."""
    bystander = Bystander(target)
    expected, length = whole(target)
    for first in range(1, length, BATCH):
        cuts = range(first, min(first + BATCH, length))
        sessions = run(target, cuts)
        wrong = [
            session.cut_at(cut)
            for session, cut in zip(sessions, cuts, strict=True)
            if session.replies() != expected
        ]
        bystander.check("sessions in two pieces")
        assert not wrong, f"{len(wrong)} of {len(cuts)}: {wrong[0]}"


@trial(
    "robustness/splitting/octet-by-octet",
    STATEMENT,
    level="MUST",
    section=SECTION,
    rests_on=(*STREAM, *NEIGHBOURS),
)
def test_octet_by_octet(target: Target) -> None:
    """Send each octet of a session by itself; the replies are those to the whole session."""
    bystander = Bystander(target)
    expected, _ = whole(target)
    session = Session(target)
    for part, answers in zip(session.parts, ANSWERS, strict=True):
        for octet in part:
            session.peer.send_raw(bytes([octet]))
            time.sleep(OCTET_S)
        settle(
            [session.peer],
            has_said(answers),
            target.timeout_s,
        )
    bystander.check("a session octet by octet")
    assert session.replies() == expected, session.describe("sent octet by octet")


@trial(
    "robustness/splitting/one-piece",
    "What comes behind CONNECT in the same piece is no less a frame.",
    level="MAY",
    section=SECTION,
)
def test_all_in_one_piece(target: Target) -> None:
    """Send a session in one piece, CONNECT to SEND; record whether the replies are the same."""
    bystander = Bystander(target)
    expected, _ = whole(target)
    session = Session(target)
    session.peer.send_raw(session.parts[0] + session.parts[1])
    settle([session.peer], has_said(ANSWERS[1]), target.timeout_s)
    session.peer.send_raw(session.parts[2])
    settle([session.peer], has_said(ANSWERS[2]), target.timeout_s)
    is_same = session.replies() == expected
    target.profile("frames behind CONNECT in one piece", "answered" if is_same else "not answered")
    bystander.check("a session in one piece")
