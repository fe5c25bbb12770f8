"""How much a target takes, found by search; and that too much is refused, not met with silence.

What is looked for is bounded, in size by the constants below and in time.
"""

import time
from collections.abc import Callable
from typing import Final

from stompkit.conformance import FailedError, Outcome, Peer, Target, trial
from stompkit.conformance.limits import KIB, MIB, Limit, grow, search, size
from stompkit.conformance.robustness import NEIGHBOURS, Bystander, need_receipts

STATEMENT: Final = (
    "What is more than a server takes troubles nobody but the client that sent it, which ought to"
    " get ERROR or the end of the connection."
)
SECTION: Final = "Robustness: limits"

LARGEST_BODY: Final = 32 * MIB
LONGEST_LINE: Final = MIB
MOST_HEADERS: Final = 10_000
LONGEST_COMMAND: Final = 64 * KIB
MOST_SUBSCRIPTIONS: Final = 2_000
MOST_TRANSACTIONS: Final = 200
MOST_CONNECTIONS: Final = 500
#: How long one search may go on, in seconds: some targets take long for what is large.
SEARCH_S: Final = 3.0
LINGER_S: Final = 0.1


def asked(target: Target, make: Callable[[], Peer]) -> Outcome:
    """What becomes of the frame with receipt r, or CONNECT, that ``make`` sends on a new peer."""
    try:
        peer = make()
    except FailedError:
        return Outcome.NOTHING
    has_session = any(frame.command == "CONNECTED" for frame in peer.frames)
    try:
        return peer.outcome("r" if has_session else None, LINGER_S)
    finally:
        peer.close()


def sent(target: Target, headers: dict[str, str], body: bytes = b"x") -> Outcome:
    """Send a message to a topic that nobody listens to."""

    def make() -> Peer:
        peer = target.connect()
        peer.send("SEND", {"destination": target.sink(), "receipt": "r", **headers}, body)
        return peer

    return asked(target, make)


def greeted(target: Target, headers: dict[str, str]) -> Outcome:
    """Send CONNECT with these headers, too."""

    def make() -> Peer:
        peer = target.open()
        peer.send("CONNECT", {**target.connect_headers(), **headers})
        return peer

    return asked(target, make)


@trial("robustness/limits/body", STATEMENT, level="MUST", section=SECTION, rests_on=NEIGHBOURS)
def test_body(target: Target) -> None:
    """Send ever larger bodies, up to 32 MiB; what is not accepted is refused."""
    need_receipts(target)
    bystander = Bystander(target)
    found = search(
        lambda octets: sent(target, {}, b"x" * octets),
        cap=LARGEST_BODY,
        seconds=SEARCH_S,
        start=64 * KIB,
        parts=16,
    )
    found.record(target, "largest body", size)
    bystander.check("large bodies")


@trial(
    "robustness/limits/header-line", STATEMENT, level="MUST", section=SECTION, rests_on=NEIGHBOURS
)
def test_header_line(target: Target) -> None:
    """Send ever longer header lines, up to 1 MiB; what is not accepted is refused."""
    need_receipts(target)
    bystander = Bystander(target)
    found = search(
        lambda octets: sent(target, {"h": "v" * (octets - 2)}),
        cap=LONGEST_LINE,
        seconds=SEARCH_S,
        start=KIB,
        parts=64,
    )
    found.record(target, "longest header line", size)
    bystander.check("long header lines")


@trial("robustness/limits/headers", STATEMENT, level="MUST", section=SECTION, rests_on=NEIGHBOURS)
def test_headers(target: Target) -> None:
    """Send ever more headers, up to 10,000; what is not accepted is refused."""
    need_receipts(target)
    bystander = Bystander(target)
    found = search(
        # Three are there already: destination, receipt and content-length.
        lambda number: sent(target, {f"h{n}": "v" for n in range(number - 3)}),
        cap=MOST_HEADERS,
        seconds=SEARCH_S,
        start=16,
    )
    found.record(target, "most headers")
    bystander.check("many headers")


@trial("robustness/limits/command", STATEMENT, level="MUST", section=SECTION, rests_on=NEIGHBOURS)
def test_command(target: Target) -> None:
    """Send a command that does not end, up to 64 KiB; record when the target has enough."""
    bystander = Bystander(target)
    found = grow(target.connect(), b"S", b"S", cap=LONGEST_COMMAND, seconds=SEARCH_S, start=64)
    found.record(target, "longest command", size)
    bystander.check("an endless command")


@trial(
    "robustness/limits/subscriptions", STATEMENT, level="MUST", section=SECTION, rests_on=NEIGHBOURS
)
def test_subscriptions(target: Target) -> None:
    """Open ever more subscriptions in one session, up to 2,000; others are not disturbed."""
    need_receipts(target)
    topic = target.topic()

    def frame(number: int) -> tuple[str, dict[str, str]]:
        return "SUBSCRIBE", {"destination": topic, "id": str(number)}

    opened(target, frame, MOST_SUBSCRIPTIONS).record(target, "most subscriptions of a session")


@trial(
    "robustness/limits/transactions", STATEMENT, level="MUST", section=SECTION, rests_on=NEIGHBOURS
)
def test_transactions(target: Target) -> None:
    """Open ever more transactions in one session, up to 200; others are not disturbed."""
    need_receipts(target)

    def frame(number: int) -> tuple[str, dict[str, str]]:
        return "BEGIN", {"transaction": f"t{number}"}

    opened(target, frame, MOST_TRANSACTIONS).record(target, "most open transactions of a session")


def opened(target: Target, frame: Callable[[int], tuple[str, dict[str, str]]], most: int) -> Limit:
    """Send frames in one session, twice as many each time, until one is refused."""
    bystander = Bystander(target)
    peer = target.connect()
    until = time.monotonic() + SEARCH_S
    found = Limit(0)
    while found.refused is None and found.most < most and time.monotonic() < until:
        batch = range(found.most + 1, min(max(16, 2 * found.most), most) + 1)
        for number in batch:
            command, headers = frame(number)
            peer.send(command, {**headers, "receipt": f"n{number}"})
        for number in batch:
            outcome = peer.outcome(f"n{number}", LINGER_S)
            found.note(number, outcome)
            if outcome is not Outcome.ACCEPTED:
                break
    bystander.check(f"{found.most} {frame(0)[0]} frames")
    return found


def one_more(target: Target) -> Outcome:
    """Open a session that stays."""
    try:
        peer = target.open()
    except FailedError:
        return Outcome.CLOSE
    peer.send("CONNECT", target.connect_headers())
    return peer.outcome(None, LINGER_S)


@trial(
    "robustness/limits/connections", STATEMENT, level="MUST", section=SECTION, rests_on=NEIGHBOURS
)
def test_connections(target: Target) -> None:
    """Open ever more sessions, up to 500, and keep them; the first of them still works."""
    bystander = Bystander(target)
    until = time.monotonic() + SEARCH_S
    found = Limit(Bystander.CONNECTIONS)
    while found.refused is None and found.most < MOST_CONNECTIONS:
        found.note(found.most + 1, one_more(target))
        if time.monotonic() > until:
            # How far it came is chance: what can be compared is the power of two.
            found.most = 1 << (found.most.bit_length() - 1)
            break
    found.record(target, "most connections")
    bystander.check(f"{found.most} connections")


@trial(
    "robustness/limits/before-login/header-line",
    STATEMENT,
    level="MUST",
    section=SECTION,
    rests_on=NEIGHBOURS,
)
def test_header_line_before_login(target: Target) -> None:
    """Send CONNECT with ever longer header lines, up to 1 MiB; it is accepted or refused."""
    bystander = Bystander(target)
    found = search(
        lambda octets: greeted(target, {"h": "v" * (octets - 2)}),
        cap=LONGEST_LINE,
        seconds=SEARCH_S,
        start=KIB,
        parts=64,
    )
    found.record(target, "longest header line before login", size)
    bystander.check("long header lines")


@trial(
    "robustness/limits/before-login/headers",
    STATEMENT,
    level="MUST",
    section=SECTION,
    rests_on=NEIGHBOURS,
)
def test_headers_before_login(target: Target) -> None:
    """Send CONNECT with ever more headers, up to 10,000; it is accepted or refused."""
    bystander = Bystander(target)
    there = len(target.connect_headers())
    found = search(
        lambda number: greeted(target, {f"h{n}": "v" for n in range(number - there)}),
        cap=MOST_HEADERS,
        seconds=SEARCH_S,
        start=16,
    )
    found.record(target, "most headers before login")
    bystander.check("many headers")
