"""The decorator that turns a test function into a case, and headers that cases send."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from stompkit.conformance import case, trial
from stompkit.conformance.case import NEWEST, cases_of
from stompkit.conformance.extensions import lives
from stompkit.conformance.requirements import catalogue


def test_first_id_of_each_version_names_the_case() -> None:
    @case("1.2/send/delivers", "1.0/send/delivers-to-destination", "1.2/overview/client-both-roles")
    def function() -> None:
        """Do something.

        And more.
        """

    made = cases_of(function)
    assert list(made) == ["1.0", "1.2"]
    assert made["1.0"].id == "1.0/send/delivers-to-destination"
    newest = made["1.2"]
    assert newest.id == "1.2/send/delivers"
    assert newest.requirements == ("1.2/send/delivers", "1.2/overview/client-both-roles")
    assert newest.expectation == "Do something.\n\nAnd more."
    assert newest.chapter == "1.2"
    requirement = catalogue()[newest.id]
    assert newest.statement == requirement.statement
    assert newest.section == requirement.section
    assert newest.level == requirement.level == "FACT"


def test_level_can_be_overridden() -> None:
    @case("1.2/send/delivers", level="SHOULD")
    def function() -> None:
        """Do something."""

    assert cases_of(function)["1.2"].level == "SHOULD"


def test_level_can_be_overridden_for_one_version() -> None:
    @case("1.0/send/delivers-to-destination", "1.2/send/delivers", level={"1.0": "SHOULD"})
    def function() -> None:
        """Do something."""

    made = cases_of(function)
    assert [made[version].level for version in ("1.0", "1.2")] == ["SHOULD", "FACT"]
    assert [made[version].can_fail(version) for version in ("1.0", "1.2")] == [False, True]


def test_failed_rests_on_the_first_requirement_or_on_those_that_are_named() -> None:
    @case("1.1/send/delivers", "1.2/send/delivers", rests_on=["1.2/send/body-is-message"])
    def function() -> None:
        """Do something."""

    made = cases_of(function)
    assert made["1.1"].rests_on == ("1.1/send/delivers",)
    assert made["1.2"].rests_on == ("1.2/send/body-is-message",)
    assert made["1.2"].sentence("1.2") == "The body of the SEND frame is the message to be sent."
    assert made["1.2"].sentence("1.0") == ""


def test_trial_of_some_versions() -> None:
    @trial(
        "behaviour/ack/unknown",
        "Something is so.",
        level="SHOULD",
        section="ACK",
        versions=("1.1", "1.2"),
        covers=("1.1/ack/acknowledges", "1.2/ack/acknowledges"),
    )
    def function() -> None:
        """Do something."""

    made = cases_of(function)
    assert [each.id for each in made.values()] == [
        "behaviour/1.1/ack/unknown",
        "behaviour/1.2/ack/unknown",
    ]
    newest = made["1.2"]
    assert newest.requirements == ("1.2/ack/acknowledges",)
    assert (newest.chapter, newest.version) == ("behaviour", "1.2")
    assert (newest.level, newest.informational) == ("SHOULD", False)
    assert (newest.statement, newest.section) == ("Something is so.", "ACK")
    assert newest.expectation == "Do something."
    assert not newest.is_alone


def test_trial_of_the_newest_version() -> None:
    @trial("robustness/flood", "Survives.", level="MAY", section="none")
    def function() -> None:
        """Do something."""

    made = cases_of(function)
    assert list(made) == [NEWEST]
    assert made[NEWEST].id == "robustness/flood"
    assert made[NEWEST].informational


@pytest.mark.parametrize(
    ("name", "alone", "is_alone"),
    [
        ("behaviour/x", None, False),
        ("behaviour/x", True, True),
        ("failover/x", None, True),
        ("robustness/x", None, True),
        ("robustness/x", False, False),
    ],
)
def test_trials_that_run_alone(
    name: str,
    alone: bool | None,  # noqa: FBT001 (a parameter of the test)
    is_alone: bool,  # noqa: FBT001
) -> None:
    @trial(name, "Is so.", level="MUST", section="none", alone=alone)
    def function() -> None:
        """Do something."""

    assert cases_of(function)[NEWEST].is_alone is is_alone


def test_function_that_is_no_case() -> None:
    assert cases_of(print) == {}


def undocumented() -> None:
    pass


@pytest.mark.parametrize(
    ("decorator", "message"),
    [
        (lambda: case(), "a case names the requirements that it covers"),
        (lambda: case("1.2/no/such")(undocumented), "1.2/no/such is not in the catalogue"),
        (lambda: case("send/delivers")(undocumented), "send/delivers is not in the catalogue"),
        (
            lambda: case("1.2/send/delivers")(undocumented),
            "1.2/send/delivers: a case has a docstring that says what is expected",
        ),
        (
            lambda: trial("a/b", "So.", level="MAY", section="x")(undocumented),
            "a/b: a case has a docstring that says what is expected",
        ),
        (
            lambda: trial("a/b", "So.", level="MAY", section="x", covers=["1.2/no/such"]),
            "1.2/no/such is not in the catalogue",
        ),
    ],
)
def test_mistakes(decorator: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decorator()


def test_a_lifetime_is_told_as_a_duration_and_as_a_time() -> None:
    before_ms = time.time_ns() // 1_000_000
    told = lives(60_000)
    assert told["expiration"] == "60000"
    assert before_ms <= int(told["expires"]) - 60_000 <= time.time_ns() // 1_000_000


def test_catalogue() -> None:
    """Ids are paths of three words, the first of which is the version."""
    for name, requirement in catalogue().items():
        assert requirement.id == name
        assert name.split("/")[0] == requirement.version
        assert len(name.split("/")) == 3
        assert requirement.statement
        assert requirement.statement.isprintable()
