"""Limits on frames, as 1.1 and 1.2 allow them.

What is looked for is bounded: 5,000 headers, a header line of 1 MiB, a body of 4 MiB.
"""

from collections.abc import Callable
from dataclasses import dataclass

from stompkit.conformance import FailedError, Outcome, Target, UnsupportedError, case

KIB = 1024
MIB = 1024 * KIB
HEADERS = (10, 100, 1_000, 5_000)
LINES = (KIB, 8 * KIB, 64 * KIB, 256 * KIB, MIB)
BODIES = (64 * KIB, MIB, 4 * MIB)
REFUSALS = (Outcome.ERROR, Outcome.ERROR_AND_CLOSE, Outcome.CLOSE)


@dataclass
class Limit:
    """What was found: the most that is accepted, and the least above it that is not."""

    accepted: int
    refused: int = 0
    outcome: Outcome = Outcome.ACCEPTED

    def in_words(self, unit: str) -> str:
        """What to note of it."""
        if not self.refused:
            return f"{self.accepted:,} {unit} are accepted"
        return f"{self.accepted:,} {unit} are accepted, {self.refused:,} are {self.outcome}"


def send_headers(target: Target, number: int, linger_s: float) -> Outcome:
    """Send a message with that many headers."""
    return send(target, {f"h{n}": "v" for n in range(number - 3)}, b"x", linger_s)


def send_line(target: Target, octets: int, linger_s: float) -> Outcome:
    """Send a message with a header line of that length."""
    return send(target, {"h": "v" * (octets - 2)}, b"x", linger_s)


def send_body(target: Target, octets: int, linger_s: float) -> Outcome:
    """Send a message with a body of that length."""
    return send(target, {}, b"x" * octets, linger_s)


def send(target: Target, headers: dict[str, str], body: bytes, linger_s: float) -> Outcome:
    """Send a message with three more headers than these to a topic that nobody listens to."""
    peer = target.connect()
    fixed = {"destination": target.sink(), "receipt": "r", "content-length": str(len(body))}
    try:
        peer.send("SEND", {**fixed, **headers}, body)
        return peer.outcome("r", linger_s)
    except FailedError:
        return Outcome.NOTHING
    finally:
        peer.close()


def limit_of(
    target: Target, attempt: Callable[[Target, int, float], Outcome], sizes: tuple[int, ...]
) -> Limit:
    """Try the sizes in turn until one is refused, then close in on the limit.

    A size that is not answered ends the search: each more would take as long as any answer.
    """
    found = Limit(0)
    for size in sizes:
        outcome = attempt(target, size, 0.0)
        if outcome is not Outcome.ACCEPTED:
            found.refused, found.outcome = size, outcome
            break
        found.accepted = size
    while found.outcome in REFUSALS and found.refused - found.accepted > precision(found):
        size = (found.accepted + found.refused) // 2
        outcome = attempt(target, size, 0.0)
        if outcome is Outcome.ACCEPTED:
            found.accepted = size
        else:
            found.refused, found.outcome = size, outcome
    if found.outcome is Outcome.ERROR:
        found.outcome = attempt(target, found.refused, target.timeout_s)
    return found


def precision(found: Limit) -> int:
    """The octets that the limit of a large size may be away from what was found."""
    return max(1, found.accepted // (64 * KIB))


@case(
    "1.1/limits/header-count",
    "1.2/limits/header-count",
    "1.1/conformance/limits-may",
    "1.2/conformance/limits-may",
)
def test_number_of_headers(target: Target) -> None:
    """Send ever more headers, up to 5,000; record how many there can be."""
    target.note(limit_of(target, send_headers, HEADERS).in_words("headers"))


@case(
    "1.1/limits/header-length",
    "1.2/limits/header-length",
    "1.1/conformance/limits-may",
    "1.2/conformance/limits-may",
)
def test_length_of_header_lines(target: Target) -> None:
    """Send ever longer header lines, up to 1 MiB; record how long one can be."""
    target.note(limit_of(target, send_line, LINES).in_words("octets in a header line"))


@case(
    "1.1/limits/body-size",
    "1.2/limits/body-size",
    "1.1/conformance/limits-may",
    "1.2/conformance/limits-may",
)
def test_size_of_bodies(target: Target) -> None:
    """Send ever larger bodies, up to 4 MiB; record how large one can be."""
    target.note(limit_of(target, send_body, BODIES).in_words("octets in a body"))


@case("1.1/limits/exceeded-error-and-close", "1.2/limits/exceeded-error-and-close")
def test_exceeded_limits(target: Target) -> None:
    """Look for the limits and exceed each by a little; ERROR comes, and the connection ends."""
    found = [
        ("headers", limit_of(target, send_headers, HEADERS)),
        ("octets in a header line", limit_of(target, send_line, LINES)),
        ("octets in a body", limit_of(target, send_body, BODIES)),
    ]
    if not any(limit.refused for _, limit in found):
        raise UnsupportedError(
            "no limit found up to 5,000 headers, 1 MiB of header line, 4 MiB of body"
        )
    for unit, limit in found:
        target.note(limit.in_words(unit))
    for unit, limit in found:
        assert limit.outcome in (Outcome.ACCEPTED, Outcome.ERROR_AND_CLOSE), limit.in_words(unit)
