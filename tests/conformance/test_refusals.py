"""Every case ends with a verdict, whichever frame the server refuses, and in whichever way.

A server may refuse any frame, and close, reset or hang at any time. The suite judges that. An
exception that is not about the target would end the run with the exit status of a broken suite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from zlib import crc32

import pytest

from tests.conformance.raw import Raw
from tests.conformance.virtual import (
    End,
    Network,
    own_broker,
    run_case,
    runnables,
    virtual,
)

#: In cases with many identical frames, one of the first frames is refused.
MOST_FRAMES = 40
#: Cases that take long even in memory, and send no frames that others do not.
LARGE = (
    *("robustness/floods", "robustness/slow", "robustness/limits", "robustness/splitting"),
    *("robustness/fuzzing", "behaviour/transaction/large", "behaviour/transaction/number"),
)
#: Settings for short cases: on this clock, no reply is late.
SHORT = {"timeout_s": 1.0, "quiet_s": 0.1, "fuzz_sessions": 5}


def error(end: End) -> None:
    """Send ERROR and close."""
    end.answer(b"ERROR\nmessage:not this one\n\n\0")
    end.finish()


WAYS: dict[str, Callable[[End], None]] = {
    "error": error,
    "close": End.finish,
    "reset": End.cut,
    "hang": End.fall_silent,
}
#: The ways to refuse one frame only, or also all later ones.
REFUSALS = [(way, is_for_good) for way in WAYS for is_for_good in (False, True)]
NAMES = [f"{way}-{'for good' if is_for_good else 'once'}" for way, is_for_good in REFUSALS]


@dataclass
class Refusing:
    """Refuses the frame with this number over all connections, and optionally all later ones."""

    way: str
    is_for_good: bool
    number: int
    seen: int = 0

    def pass_on(self, end: End, frame: Raw) -> bool:
        """Count a frame, and refuse it if its number is due."""
        self.seen += 1
        is_refused = self.seen == self.number or (self.is_for_good and self.seen > self.number)
        if is_refused:
            WAYS[self.way](end)
        return not is_refused


@pytest.fixture
def network() -> Iterator[Network]:
    """An in-memory network."""
    with virtual() as made:
        yield made


def survives(id: str, network: Network, refusing: Refusing) -> bool:
    """Run a case; return True if it sent the frame that had to be refused.

    Raises the exceptions of the case that are not about the target.
    """
    try:
        run_case(runnables()[id], network, own_broker, refusing, **SHORT)
    except Exception as failure:
        how = NAMES[REFUSALS.index((refusing.way, refusing.is_for_good))]
        failure.add_note(f"{id}, frame {refusing.number}: {how}")
        raise
    return refusing.seen >= refusing.number


@pytest.mark.parametrize("id", [each for each in runnables() if not each.startswith(LARGE)])
def test_case_survives_refusals(id: str, network: Network) -> None:
    """The server refuses each of the first frames, in a different way for each frame."""
    first = crc32(id.encode())
    for number in range(1, 9):
        refusing = Refusing(*REFUSALS[(first + number) % len(REFUSALS)], number)
        if not survives(id, network, refusing):
            break


@pytest.mark.matrix
@pytest.mark.parametrize("refusal", REFUSALS, ids=NAMES)
@pytest.mark.parametrize("id", runnables())
def test_case_survives_each_refusal(id: str, refusal: tuple[str, bool], network: Network) -> None:
    """The server refuses each frame, in each way."""
    frames = 3 if id.startswith(LARGE) else MOST_FRAMES
    for number in range(1, frames + 1):
        if not survives(id, network, Refusing(*refusal, number)):
            break
