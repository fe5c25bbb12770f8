"""Heart-beats over longer times and both ways, and the details that are left to the server.

Those that the target sends may be late by half their interval, and by what a busy machine takes.
"""

import time
from itertools import pairwise

from stompkit.conformance import (
    FailedError,
    Peer,
    Target,
    UnsupportedError,
    frame_octets,
    trial,
    tried_again,
)
from stompkit.conformance.requirements import statements
from stompkit.conformance.scenarios import assert_same_body, bodies, takes
from stompkit.frames import parse_heart_beat

SECTION = "Heart-beating"
#: The longest interval that there is time to watch, in milliseconds.
LONGEST_MS = 2_000
#: How late a beat may be: by half its interval, and by what a busy machine may take.
TOLERANCE = 1.5
NOISE_S = 0.3
#: How late most beats may be: a stall makes one or two late, a wrong interval all.
USUAL = 1.25
SHORT_S = 0.05
#: More than the buffers between a server and a client that does not read.
LARGE_BYTES = 8 * 1024 * 1024
#: Time in seconds in which a busy machine passes on so much.
LARGE_S = 60.0


def connected_with(
    target: Target, can_ms: int, wants_ms: int, *, longest_ms: int = LONGEST_MS
) -> tuple[Peer, float, float]:
    """A session with this heart-beat header, and the seconds between its beats and the target's.

    0 seconds stand for no beats. Raises UnsupportedError where they are too far apart to wait for.
    """
    peer = target.connect({"heart-beat": f"{can_ms},{wants_ms}"})
    try:
        offered = parse_heart_beat(peer.frames[0].headers.get("heart-beat"))
    except ValueError as error:
        raise FailedError(f"CONNECTED: {error}") from None
    pairs = ((can_ms, offered[1]), (offered[0], wants_ms))
    ours, its = (max(can, wants) if can and wants else 0 for can, wants in pairs)
    for wanted, agreed in ((can_ms, ours), (wants_ms, its)):
        if wanted and not agreed:
            raise UnsupportedError("the target's heart-beat header says that it has no such beats")
        if agreed > longest_ms:
            raise UnsupportedError(f"the target's heart-beats are {agreed} ms apart")
    return peer, ours / 1000, its / 1000


def assert_alive(target: Target, peer: Peer, why: str) -> None:
    """Fail if the target does not answer any more; ``why`` says why it ought to."""
    try:
        peer.call("SEND", {"destination": target.sink()}, b"to nobody")
    except FailedError as error:
        raise FailedError(f"{error}, though {why}") from None


def assert_in_time(target: Target, peer: Peer, seconds: float, since: float) -> None:
    """Fail if the target was silent for too long at any time since then."""
    times = [since, *(at for at, _ in peer.arrivals if at > since), time.monotonic()]
    gaps = sorted(after - before for before, after in pairwise(times))
    longest, usual = gaps[-1], gaps[len(gaps) // 2]
    mean = (times[-1] - times[0]) / (len(times) - 1)
    target.note(
        f"something came every {mean:.2f} s on average, and after {longest:.2f} s at the most;"
        f" {seconds:g} s are agreed on, {seconds * TOLERANCE:g} s allowed"
    )
    assert longest <= seconds * TOLERANCE + NOISE_S, (
        f"{longest:.2f} s without an octet, for one every {seconds:g} s promised"
    )
    assert usual <= seconds * USUAL + SHORT_S, (
        f"half of the octets came after {usual:.2f} s or more, for some every {seconds:g} s"
    )


def first_beat(peer: Peer, seconds: float) -> float:
    """Wait for the target's first beat, and give its time; 1.1/heartbeat says how soon it comes."""
    peer.expect_beat(3 * seconds + NOISE_S)
    return time.monotonic()


@trial(
    "behaviour/heartbeat/long-idle",
    "A server goes on sending its heart-beats for as long as there is nothing else to send.",
    level="FACT",
    section=SECTION,
    rests_on=statements("heartbeat/sender-in-time"),
)
@tried_again
def test_beats_go_on(target: Target) -> None:
    """Ask for a beat each half second and be idle for six of them; all come in time."""
    peer, _, seconds = connected_with(target, 0, 500)
    since = first_beat(peer, seconds)
    while time.monotonic() < since + 6 * seconds:
        peer.expect_beat(seconds * TOLERANCE + NOISE_S)
    assert_in_time(target, peer, seconds, since)


@trial(
    "behaviour/heartbeat/while-receiving",
    "What the client sends does not stand for the heart-beats that the server has promised.",
    level="FACT",
    section=SECTION,
    rests_on=statements("heartbeat/sender-in-time"),
)
@tried_again
def test_beats_come_to_a_busy_client(target: Target) -> None:
    """Ask for beats and send messages all the time, for four intervals; they come all the same."""
    peer, _, seconds = connected_with(target, 0, 500)
    sink = target.sink()
    since = first_beat(peer, seconds)
    while time.monotonic() < since + 4 * seconds and not peer.is_closed_by_target:
        peer.send("SEND", {"destination": sink}, b"to nobody")
        peer.collect(seconds / 5)
    assert_alive(target, peer, "the client only sent messages")
    assert_in_time(target, peer, seconds, since)


@trial(
    "behaviour/heartbeat/between-frames",
    "Heart-beats come between frames, and never inside one that takes long to send.",
    level="FACT",
    section=SECTION,
    rests_on=statements("bnf/frame", "message/body"),
)
def test_beats_come_between_frames(target: Target) -> None:
    """Ask for beats and let a large message wait for four intervals; it arrives unchanged."""
    peer, _, seconds = connected_with(target, 0, 500)
    queue = target.queue()
    target.subscribe(peer, queue)
    body = b"0123456789abcdef" * (LARGE_BYTES // 16)
    try:
        is_taken = takes(target.connect(), "SEND", {"destination": queue}, body)
    except FailedError:
        is_taken = False  # a target may be slow
    if not is_taken:
        raise UnsupportedError(f"the target does not take a body of {LARGE_BYTES:,} octets")
    # The peer reads nothing meanwhile: the target can send no more than the buffers hold.
    time.sleep(4 * seconds)
    target.extend_deadline(LARGE_S)
    received = bodies(peer.gather_messages(1, LARGE_S))
    assert received, f"the message of {len(body):,} octets did not arrive"
    assert_same_body(received[0], body)


@trial(
    "behaviour/heartbeat/both-ways",
    "Heart-beats of both sides are independent of each other.",
    level="FACT",
    section=SECTION,
    rests_on=statements("heartbeat/any-data-counts", "heartbeat/sender-in-time"),
)
@tried_again
def test_both_sides_beat(target: Target) -> None:
    """Beat twice in each of five intervals; the target beats as well, and answers."""
    peer, ours, its = connected_with(target, 600, 600)
    peer.send_raw(b"\n")
    since = first_beat(peer, its)
    for _ in range(10):
        peer.send_raw(b"\n")
        peer.collect(ours / 2)
    assert_alive(target, peer, f"a beat came every {ours / 2:.2f} s, for {ours:g} s promised")
    assert_in_time(target, peer, its, since)


@trial(
    "behaviour/heartbeat/slower-side-decides",
    "A server that would like heart-beats more often than the client can send them puts up with"
    " what the client can.",
    level="FACT",
    section=SECTION,
    rests_on=statements("heartbeat/interval-is-max", "heartbeat/any-data-counts"),
)
@tried_again
def test_slow_clients(target: Target) -> None:
    """Promise a beat every three seconds, and send each half a second early; the session lasts."""
    peer, seconds, _ = connected_with(target, 3_000, 0, longest_ms=3_000)
    for _ in range(3):
        peer.collect(seconds - 0.5)
        peer.send_raw(b"\n")
    assert_alive(target, peer, f"a beat came every {seconds - 0.5:g} s, for {seconds:g} s promised")


@trial(
    "behaviour/heartbeat/zero-disables",
    "With 0,0 there are no heart-beats: the server sends none and expects none.",
    level="FACT",
    section=SECTION,
    rests_on=statements("heartbeat/cx0-or-sy0-none", "heartbeat/sx0-or-cy0-none"),
)
def test_no_beats(target: Target) -> None:
    """Say heart-beat:0,0 and nothing else for three seconds; no octet comes, the session lasts."""
    peer = target.connect({"heart-beat": "0,0"})
    peer.collect(target.quiet_s)  # a server may end CONNECTED by a line end
    before = len(peer.arrivals)
    peer.collect(3.0)
    octets = sum(number for _, number in peer.arrivals[before:])
    assert_alive(target, peer, "the client has promised no heart-beats (0,0)")
    assert not octets, f"{octets} octets came though the client wants no heart-beats (0,0)"


@trial(
    "behaviour/heartbeat/silent-client",
    "A server may give up a client that does not send the heart-beats it has promised.",
    level="MAY",
    section=SECTION,
)
def test_silence(target: Target) -> None:
    """Promise beats and send none for six intervals; record when the target closes, if it does."""
    peer, seconds, _ = connected_with(target, 500, 0)
    about = "client that does not send its heart-beats"
    began = time.monotonic()
    peer.collect(6 * seconds)
    if not peer.is_closed_by_target:
        target.profile(about, "not closed in 6 intervals")
        return
    silence = time.monotonic() - began
    target.note(f"closed after {silence:.1f} s, for {seconds:g} s promised")
    target.profile(about, f"closed after about {round(silence / seconds)} intervals")
    told = any(frame.command == "ERROR" for frame in peer.frames)
    target.profile("what such a client is told", "ERROR" if told else "nothing")


@trial(
    "behaviour/heartbeat/slow-frame",
    "Octets of a frame that is not complete may count as a sign of life.",
    level="MAY",
    section=SECTION,
)
def test_slow_frame(target: Target) -> None:
    """Take four intervals for one SEND, with an octet now and then; record whether it is taken."""
    peer, seconds, _ = connected_with(target, 500, 0)
    frame = frame_octets(
        "SEND", {"destination": target.sink()}, b"very slowly", version=peer.version
    )
    peer.send_raw(frame[:-12])
    began = time.monotonic()
    for octet in frame[-12:]:
        peer.collect(seconds / 3)
        peer.send_raw(bytes([octet]))
        if peer.is_closed_by_target:
            break
    about = "frame that comes octet by octet, and no heart-beats"
    if peer.is_closed_by_target:
        intervals = round((time.monotonic() - began) / seconds)
        target.profile(about, f"closed after about {intervals} intervals")
        return
    assert_alive(target, peer, "the frame is complete")
    target.profile(about, "taken after 4 intervals")


@trial(
    "behaviour/heartbeat/replies",
    "A server is free to choose the heart-beats that it offers and wants.",
    level="MAY",
    section=SECTION,
)
def test_replies(target: Target) -> None:
    """Send some pairs of numbers in CONNECT's heart-beat; record the pairs that come back."""
    for pair in ("0,0", "100,100", "500,700", "1500,2500"):
        reply = target.connect({"heart-beat": pair}).frames[0].headers.get("heart-beat", "none")
        target.profile(f"heart-beat:{pair} is answered by", reply)


@trial(
    "behaviour/heartbeat/on-old-sessions",
    "Heart-beats came with 1.1; a server may have them on 1.0 as well.",
    level="MAY",
    section=SECTION,
    versions=("1.0",),
)
def test_beats_on_1_0(target: Target) -> None:
    """Ask for beats on a session of 1.0; record whether they are promised."""
    peer = target.connect({"heart-beat": "0,1000"})
    can_ms = peer.frames[0].headers.get("heart-beat", "0,0").partition(",")[0]
    target.profile("heart-beats on 1.0", "none" if can_ms == "0" else "as on later versions")
