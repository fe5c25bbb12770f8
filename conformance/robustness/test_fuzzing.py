"""Sessions with random faults."""

from stompkit.conformance import Target, trial
from stompkit.conformance.fuzzing import fuzz
from stompkit.conformance.robustness import NEIGHBOURS


@trial(
    "robustness/fuzzing",
    "Whatever a client sends, the sessions of others go on and new ones are let in.",
    level="MUST",
    section="Robustness: fuzzing",
    rests_on=NEIGHBOURS,
)
def test_fuzzing(target: Target) -> None:
    """Try sessions with random faults, --fuzz of them made of --seed; others are not disturbed."""
    fuzz(target)
