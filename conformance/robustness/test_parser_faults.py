"""Faults that were found in the parsers of STOMP servers in 2026, most of them before any login.

Each case does what brought one of these servers down. On newer versions of them, and on all others,
the connection ends or the frame is refused, and nobody else notices.
"""

from typing import Final

from stompkit.conformance import Target, frame_octets, trial
from stompkit.conformance.limits import KIB, MIB, Limit, grow, size
from stompkit.conformance.robustness import NEIGHBOURS, Bystander, settle

STATEMENT: Final = (
    "No octets that one client sends, before login or after it, end the sessions of others or the"
    " server."
)
BOUNDED: Final = (
    "No octets that a client sends before login end the sessions of others; what a server holds of"
    " them ought to be bounded, far below what it could hold in all."
)
#: What nobody needs to say before login.
TOO_MUCH: Final = 4 * MIB
#: How long it may take to send that, in seconds.
GROWING_S: Final = 5.0
#: How long a target may take to end a connection, in seconds, where it is only recorded.
ANSWER_S: Final = 0.25


def endure(target: Target, lengths: tuple[str, ...], body: bytes) -> None:
    """Send a CONNECT and, in a session, a SEND with each of these lengths; others go on."""
    bystander = Bystander(target)
    peers = []
    for length in lengths:
        head = {"destination": target.sink(), "content-length": length}
        for command in ("CONNECT", "SEND"):
            peer = target.open() if command == "CONNECT" else target.connect()
            peer.send_raw(frame_octets(command, head, body, length=False))
            bystander.check(f"{command} with content-length:{length[:30]}")
            peers.append(peer)
    settle(peers, lambda peer: False, ANSWER_S)
    bystander.check("these content-lengths")
    closed = sum(peer.is_closed_by_target for peer in peers)
    target.note(f"{closed} of {len(peers)} connections were ended")


@trial(
    "robustness/parser-faults/negative-content-length",
    STATEMENT,
    level="MUST",
    section="CVE-2026-49432: Apache ActiveMQ, STOMP negative content-length",
    rests_on=NEIGHBOURS,
)
def test_negative_content_length(target: Target) -> None:
    """Send content-lengths below zero, small and large; others are not disturbed."""
    endure(target, ("-1", "-2", "-1000000", "-2147483648", "-9223372036854775808"), b"x" * 100)


@trial(
    "robustness/parser-faults/no-number",
    STATEMENT,
    level="MUST",
    section="RabbitMQ, native STOMP: crash on a content-length that is no number",
    rests_on=NEIGHBOURS,
)
def test_content_length_that_is_no_number(target: Target) -> None:
    """Send content-lengths of letters, signs and blanks; others are not disturbed."""
    endure(target, ("x", "", " ", "-", "1e9", "NaN", "\u0663", "1 2"), b"x" * 100)


@trial(
    "robustness/parser-faults/overflow",
    STATEMENT,
    level="MUST",
    section="openSUSE snapper #1155: crash on a content-length that no machine word holds",
    rests_on=NEIGHBOURS,
)
def test_content_length_that_overflows(target: Target) -> None:
    """Send content-lengths around and beyond the powers of two; others are not disturbed."""
    powers = [2**31, 2**32, 2**63, 2**64]
    lengths = [str(power + more) for power in powers for more in (-1, 1)]
    endure(target, (*lengths, "9" * 1_000), b"x")


@trial(
    "robustness/parser-faults/past-nul",
    STATEMENT,
    level="MUST",
    section="RabbitMQ, native STOMP: crash on a content-length past NUL",
    rests_on=NEIGHBOURS,
)
def test_content_length_past_nul(target: Target) -> None:
    """Send bodies that end in NUL before their content-length; others are not disturbed."""
    endure(target, ("1", "2", "3"), b"\0")
    endure(target, ("200",), b"x\0\n\n\0" * 20 + b"x")


@trial(
    "robustness/parser-faults/endless-header",
    BOUNDED,
    level="MUST",
    section="CVE-2026-53916: Apache ActiveMQ, unbounded header buffer in the STOMP NIO codec",
    rests_on=NEIGHBOURS,
)
def test_endless_header(target: Target) -> None:
    """Begin CONNECT with a header line that does not end, up to 4 MiB; the target has enough."""
    bounded(target, "endless header line before login", b"CONNECT\nh:", b"x" * KIB)


@trial(
    "robustness/parser-faults/endless-headers",
    BOUNDED,
    level="MUST",
    section="CVE-2026-53916: Apache ActiveMQ, unbounded header buffer in the STOMP NIO codec",
    rests_on=NEIGHBOURS,
)
def test_endless_headers(target: Target) -> None:
    """Begin CONNECT with headers that do not end, up to 4 MiB; the target has enough."""
    bounded(target, "endless headers before login", b"CONNECT\n", b"h:%b\n" % (b"x" * 97))


@trial(
    "robustness/parser-faults/endless-body",
    BOUNDED,
    level="MUST",
    section="traffic-hunter titan #125: unbounded buffer until NUL, before any login",
    rests_on=NEIGHBOURS,
)
def test_endless_body(target: Target) -> None:
    """Begin CONNECT with a body that does not end, up to 4 MiB; the target has enough."""
    head = frame_octets("CONNECT", target.connect_headers())[:-1]
    bounded(target, "endless body before login", head, b"x" * KIB)


def bounded(target: Target, about: str, begin: bytes, more: bytes) -> None:
    """Send what does not end; the target refuses it at some size, and others go on."""
    bystander = Bystander(target)
    found: Limit = grow(target.open(), begin, more, cap=TOO_MUCH, seconds=GROWING_S)
    found.record(target, about, size)
    bystander.check(about)
    target.should(found.most < TOO_MUCH, f"it takes {size(found.most)} of {about}")
