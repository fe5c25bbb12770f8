"""Heart-beats, as 1.1 and 1.2 have them.

The intervals are short, so that all cases of a version together take no more than half a minute;
a target that rounds them up, or offers none as short, is judged by what it offers.
"""

import re
import time
from itertools import pairwise

from stompkit.conformance import FailedError, Peer, Target, UnsupportedError, case, tried_again
from stompkit.frames import HeartBeatOffer, parse_heart_beat

#: The longest interval in seconds that there is time to watch several of.
LONGEST_S = 1.5
#: How many intervals the only awaited beat may take, and how often the case waits for it.
PATIENCE = 2
ATTEMPTS = 2
#: How late a beat may be: by half its interval, and by what a busy machine may take.
MARGIN = 1.5
NOISE_S = 0.25
#: How late most beats may be: a stall makes one or two late, a wrong interval all.
USUAL = 1.25
SHORT_S = 0.05


def connected_with(target: Target, heart_beat: str) -> tuple[Peer, HeartBeatOffer]:
    """A session opened with this header, and the two numbers of CONNECTED's; 0,0 if missing."""
    peer = target.connect({"heart-beat": heart_beat})
    value = peer.frames[0].headers.get("heart-beat")
    try:
        return peer, parse_heart_beat(value)
    except ValueError as error:
        raise AssertionError(f"CONNECTED: {error}") from None


def agreed(can_ms: int, wants_ms: int) -> float:
    """The seconds between two beats, by what one side can and the other wants."""
    if not can_ms or not wants_ms:
        raise UnsupportedError("the target's heart-beat header says that there are no such beats")
    return max(can_ms, wants_ms) / 1000


def interval(can_ms: int, wants_ms: int) -> float:
    """The seconds between two beats; raises UnsupportedError where there is no time for several."""
    seconds = agreed(can_ms, wants_ms)
    if seconds > LONGEST_S:
        raise UnsupportedError(f"the target's heart-beats are {seconds:g} s apart")
    return seconds


def expect_one_beat(target: Target, peer: Peer, seconds: float) -> None:
    """Wait twice the interval for a beat; of long intervals there is no time to watch more.

    Raises UnsupportedError where the case, with its second attempt, has no time for that.
    """
    if ATTEMPTS * PATIENCE * seconds + target.timeout_s > target.address.case_s:
        raise UnsupportedError(f"the target's heart-beats are {seconds:g} s apart")
    try:
        peer.expect_beat(PATIENCE * seconds)
    except FailedError as error:
        raise FailedError(f"{error}, for one every {seconds:g} s promised") from None


def assert_alive(peer: Peer, why: str) -> None:
    """Fail if the target does not answer any more; ``why`` says why it ought to."""
    try:
        peer.call("BEGIN", {"transaction": "alive"})
    except FailedError as error:
        raise FailedError(f"{error}, though {why}") from None


@case(
    "1.1/heartbeat/two-integers",
    "1.2/heartbeat/two-integers",
    "1.1/heartbeat/declared-in-connect",
    "1.2/heartbeat/declared-in-connect",
)
def test_header(target: Target) -> None:
    """Send heart-beat:1000,1000; CONNECTED's has two numbers. Send bad ones; record the answers."""
    value = target.connect({"heart-beat": "1000,1000"}).frames[0].headers.get("heart-beat")
    assert value is None or re.fullmatch(r"[0-9]+,[0-9]+", value), f"CONNECTED has {value!r}"
    target.note(f"1000,1000 is answered by {value or 'no header'}")
    for bad in ("1000", "a,b", "-1,0", "1,2,3"):
        peer = target.open()
        peer.send("CONNECT", {**target.connect_headers(), "heart-beat": bad})
        target.note(f"{bad} is {peer.outcome(None, target.quiet_s)}")


@case(
    "1.1/heartbeat/missing-is-0-0",
    "1.2/heartbeat/missing-is-0-0",
    "1.1/heartbeat/optional",
    "1.2/heartbeat/optional",
    "1.1/heartbeat/cx0-or-sy0-none",
    "1.2/heartbeat/cx0-or-sy0-none",
)
def test_silent_clients(target: Target) -> None:
    """Say nothing for four seconds, without heart-beat and with 0,500; both sessions last.

    The one without heart-beat gets no beats.
    """
    asking, _ = connected_with(target, "0,500")
    plain = target.connect()
    plain.collect(target.quiet_s)
    before = len(plain.arrivals)
    plain.collect(4.0)
    octets = sum(number for _, number in plain.arrivals[before:])
    assert_alive(asking, "the client offered no heart-beats (0,500)")
    assert_alive(plain, "there was no heart-beat header")
    assert not octets, f"{octets} octets came though there was no heart-beat header"


@case(
    "1.1/heartbeat/sender-in-time",
    "1.2/heartbeat/sender-in-time",
    "1.1/heartbeat/interval-is-max",
    "1.2/heartbeat/interval-is-max",
    "1.1/heartbeat/first-number-can-send",
    "1.2/heartbeat/first-number-can-send",
    "1.1/heartbeat/second-number-wants",
    "1.2/heartbeat/second-number-wants",
    "1.1/heartbeat/eol-when-idle",
    "1.2/heartbeat/eol-when-idle",
)
@tried_again
def test_beats_come_in_time(target: Target) -> None:
    """Ask for beats; a line end comes in each interval, also in the one after a RECEIPT.

    Of intervals longer than 1.5 s, one is watched, and its beat may come in twice the time.
    """
    peer, (can_ms, _) = connected_with(target, "0,1000")
    seconds = agreed(can_ms, 1000)
    if seconds > LONGEST_S:
        expect_one_beat(target, peer, seconds)
        return
    latest = seconds * MARGIN + NOISE_S
    for number in range(4):
        try:
            peer.expect_beat(latest)
        except FailedError as error:
            raise FailedError(f"{error}, for one every {seconds} s promised") from None
        if number < 2:
            peer.call("BEGIN", {"transaction": f"t{number}"})
    times = [at for at, _ in peer.arrivals]
    gaps = sorted(after - before for before, after in pairwise(times))
    assert gaps[-1] <= latest, (
        f"{gaps[-1]:.2f} s without an octet, for one every {seconds} s promised"
    )
    # Of the four gaps that a beat has ended, two may be long by chance.
    assert gaps[-3] <= seconds * USUAL + SHORT_S, (
        f"most beats came after {gaps[-3]:.2f} s, for one every {seconds} s promised"
    )
    commands = [frame.command for frame in peer.frames]
    answer = "RECEIPT" if peer.barrier is None else "MESSAGE"
    assert commands == ["CONNECTED", answer, answer], f"the server sent {commands}"
    assert not peer.violation, f"the beats are not line ends: {peer.violation}"


@case("1.1/heartbeat/any-data-counts", "1.2/heartbeat/any-data-counts")
@tried_again
def test_any_data_is_a_sign_of_life(target: Target) -> None:
    """Offer beats; send only frames, and only line ends, for four intervals; the sessions last."""
    framing, (_, wants_ms) = connected_with(target, "500,0")
    seconds = interval(500, wants_ms)
    eols = (b"\n", b"\r\n") if target.version == "1.2" else (b"\n",)
    beating = [(connected_with(target, "500,0")[0], eol) for eol in eols]
    until = time.monotonic() + 4 * seconds
    while time.monotonic() < until:
        name = {"transaction": framing.new_transaction()}
        framing.send("BEGIN", name)
        framing.send("ABORT", name)
        for peer, eol in beating:
            peer.send_raw(eol)
        framing.collect(seconds / 2)
        if framing.is_closed_by_target:
            break
    assert_alive(framing, f"two frames came every {seconds / 2} s")
    for peer, eol in beating:
        assert_alive(peer, f"the beat {eol!r} came every {seconds / 2} s")


@case(
    "1.1/heartbeat/error-margin",
    "1.2/heartbeat/error-margin",
    "1.1/heartbeat/sx0-or-cy0-none",
    "1.2/heartbeat/sx0-or-cy0-none",
)
@tried_again
def test_late_beats_are_forgiven(target: Target) -> None:
    """Send each beat a tenth of its interval late; the session lasts. No beats come back."""
    peer, (_, wants_ms) = connected_with(target, "800,0")
    seconds = interval(800, wants_ms)
    peer.collect(seconds * 1.1)
    before = len(peer.arrivals)
    for _ in range(3):
        peer.send_raw(b"\n")
        peer.collect(seconds * 1.1)
    came = len(peer.arrivals) - before
    assert_alive(peer, f"a beat came every {seconds * 1.1:.2f} s, for {seconds} s promised")
    target.should(came == 0, f"{came} beats came, though the client wants none (800,0)")


@case("1.1/heartbeat/may-consider-dead", "1.2/heartbeat/may-consider-dead")
def test_silence_against_the_promise(target: Target) -> None:
    """Offer beats and send none for five intervals; record when the server closes, if it does."""
    peer, (_, wants_ms) = connected_with(target, "500,0")
    seconds = interval(500, wants_ms)
    began = time.monotonic()
    peer.collect(min(5 * seconds, 5.0))
    silence = time.monotonic() - began
    what = "closed" if peer.is_closed_by_target else "still open"
    target.note(f"{what} after {silence:.1f} s of silence, for {seconds} s promised")
