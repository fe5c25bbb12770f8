"""Deriving the verdict of a case from its records and exceptions."""

from __future__ import annotations

import pytest

from stompkit.conformance import FailedError, Target, UnsupportedError, case, trial, tried_again
from stompkit.conformance.address import Address
from stompkit.conformance.case import NEWEST, Case, cases_of
from stompkit.conformance.peer import Recorder
from stompkit.conformance.plugin import judge
from stompkit.conformance.requirements import Level, catalogue
from stompkit.conformance.run.overall import judge_run
from stompkit.conformance.target import Capabilities
from stompkit.conformance.verdict import Ending, Outcome, Verdict


def a_case(name: str = "1.2/send/delivers", level: Level | None = None) -> Case:
    @case(name, level=level)
    def function() -> None:
        """Do something."""

    return cases_of(function)["1.2"]


@pytest.fixture
def target() -> Target:
    address = Address("localhost", 1, "me", "a secret")
    return Target(address, Capabilities(("1.2",), ""), "1.2", Recorder(address.secret))


@pytest.mark.parametrize(
    ("level", "error", "verdict", "detail"),
    [
        ("MUST", None, Verdict.OK, ""),
        ("MUST", FailedError("no"), Verdict.FAILED, "no"),
        ("FACT", AssertionError("no\nassert 1 == 2"), Verdict.FAILED, "no"),
        ("FACT", AssertionError(), Verdict.FAILED, "an assertion without a message"),
        ("MAY", FailedError("no"), Verdict.NON_STRICT, "no"),
        ("SHOULD", FailedError("no"), Verdict.NON_STRICT, "no"),
        ("SHOULD", UnsupportedError("none"), Verdict.UNSUPPORTED, "none"),
        ("MUST", UnsupportedError("none"), Verdict.UNSUPPORTED, "none"),
        (
            "MUST",
            KeyError("ack"),
            Verdict.FAILED,
            "the case cannot go on with what came: KeyError: 'ack'",
        ),
    ],
)
def test_verdict(
    level: Level, error: BaseException | None, verdict: Verdict, detail: str, target: Target
) -> None:
    result = judge(a_case(level=level), target, error)
    assert (result.verdict, result.detail, result.level) == (verdict, detail, level)


def test_recommendations_that_are_not_followed(target: Target) -> None:
    """Violated recommendations determine the verdict if nothing worse was found."""
    target.should(True, "nothing")
    assert judge(a_case(), target, None).verdict is Verdict.OK
    target.should(False, "no type")
    target.should(False, "no length")
    result = judge(a_case(), target, None)
    assert (result.verdict, result.detail) == (Verdict.NON_STRICT, "no type; no length")
    assert judge(a_case(), target, FailedError("no")).verdict is Verdict.FAILED


def test_what_is_left_open(target: Target) -> None:
    informational = a_case("1.2/message/server-headers-may")
    target.note("two headers")
    result = judge(informational, target, None)
    assert (result.verdict, result.notes) == (Verdict.INFORMATIONAL, ["two headers"])
    assert judge(informational, target, FailedError("no")).verdict is Verdict.NON_STRICT


def test_words_of_the_target_are_made_harmless(target: Target) -> None:
    target.note("said \x1b[2J and a secret\n\udcff")
    result = judge(a_case(), target, FailedError("a secret \x00" + "x" * 5_000))
    assert result.notes == ["said \\x1b[2J and ***\\n\\udcff"]
    assert result.detail.startswith("*** \\x00xxx")
    assert len(result.detail) < 1_100


def test_case_that_failed_before_it_had_a_target() -> None:
    result = judge(a_case(), None, FailedError("no"))
    assert (result.verdict, result.notes, result.wire) == (Verdict.FAILED, [], [])


def test_violation_counts_in_the_case_about_it(target: Target) -> None:
    """Whichever case has seen it; if that case is not part of the run, the violation is a note."""
    about, other = a_case("1.2/error/must-close"), a_case("1.2/error/body-may")
    results = [judge(about, target, None), judge(other, target, None)]
    results[1].violations = {about.id: "it stays open", "1.2/message/ack-header": "none"}
    judged = judge_run(results)
    assert [each.verdict for each in judged] == [Verdict.FAILED, Verdict.INFORMATIONAL]
    assert judged[0].detail == "in the case 1.2/error/body-may: it stays open"
    assert judged[1].notes == [
        "1.2/message/ack-header, which is not among the cases, is violated: none"
    ]


def test_endings_are_ordered() -> None:
    assert sorted(Ending, key=lambda each: each.rank) == ["clean", "closed", "DROPPED", "HUNG"]


def test_outcomes_end_a_sentence() -> None:
    """Each outcome can complete a sentence such as: a header with an empty name is ..."""
    assert all(each.value[0].islower() and each.value[-1] not in ".\n" for each in Outcome)


def test_a_case_about_time_is_tried_once_more(target: Target) -> None:
    """If the second attempt succeeds, the first failure is a note."""
    failures = [FailedError("too late")]

    @tried_again
    def function(_: Target) -> None:
        if failures:
            raise failures.pop()

    function(target)
    assert target.notes == ["tried once more, since at first: too late"]


def test_a_case_about_time_fails_if_it_does_so_twice(target: Target) -> None:
    attempts = []

    @tried_again
    def function(target: Target) -> None:
        attempts.append(target)
        raise FailedError(f"attempt {len(attempts)}")

    with pytest.raises(FailedError, match="attempt 2"):
        function(target)
    assert len(attempts) == 2


def test_failed_quotes_its_sentence(target: Target) -> None:
    result = judge(a_case(), target, FailedError("no"))
    assert result.sentence == catalogue()["1.2/send/delivers"].sentence != ""
    assert judge(a_case(level="SHOULD"), target, FailedError("no")).sentence == ""


@pytest.mark.parametrize(
    ("rests_on", "verdict", "sentences"),
    [
        (("1.0/send/body-is-message", "1.2/send/body-is-message"), Verdict.FAILED, 1),
        (("1.2/send/body-is-message", "1.2/message/body"), Verdict.FAILED, 2),
        (("1.0/send/body-is-message",), Verdict.NON_STRICT, 0),
        ((), Verdict.FAILED, 0),
    ],
)
def test_failed_rests_on_the_version_that_is_spoken(
    rests_on: tuple[str, ...], verdict: Verdict, sentences: int, target: Target
) -> None:
    """A trial that names none at all is somebody's own, and judged by its level."""

    @trial("behaviour/x", "So.", level="MUST", section="none", rests_on=rests_on)
    def function() -> None:
        """Do something."""

    result = judge(cases_of(function)[NEWEST], target, FailedError("no"))
    assert result.verdict is verdict
    quoted = [catalogue()[each].sentence for each in rests_on if each.startswith("1.2")]
    assert result.sentence == " ... ".join(quoted)
    assert len(quoted) == sentences
