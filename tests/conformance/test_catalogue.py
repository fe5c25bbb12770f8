"""The catalogue of requirements is consistent with the cases."""

from __future__ import annotations

import pytest

from stompkit.conformance.case import NEWEST
from stompkit.conformance.requirements import catalogue, statements
from stompkit.conformance.run.runner import Selection, all_cases


@pytest.fixture(scope="module")
def covered() -> set[str]:
    """Return the ids of all requirements that cases name."""
    return {each for case in all_cases(Selection()) for each in case.requirements}


def test_what_a_client_can_observe_is_named_by_a_case(covered: set[str]) -> None:
    observable = {each.id for each in catalogue().values() if each.observable_by_client}
    assert sorted(observable - covered) == []


def test_what_no_client_can_observe_is_named_by_none(covered: set[str]) -> None:
    hidden = {each.id for each in catalogue().values() if not each.observable_by_client}
    assert sorted(hidden & covered) == []


def test_only_what_no_client_can_observe_has_no_kind_of_case() -> None:
    wrong = [
        each.id
        for each in catalogue().values()
        if each.observable_by_client is (each.kind == "none")
    ]
    assert wrong == []


def test_a_requirement_that_another_covers_names_no_case() -> None:
    """A case about the other requirement names it, too."""
    names = {case.id for case in all_cases(Selection())}
    assert [
        each.id for each in catalogue().values() if each.kind == "ref" and each.id in names
    ] == []


def test_what_a_client_can_observe_has_its_sentence() -> None:
    for each in catalogue().values():
        assert bool(each.sentence) is each.observable_by_client, each.id
        assert each.sentence.isprintable(), each.id


def test_a_case_that_can_be_failed_names_its_sentence() -> None:
    """Those that run on the newest version of the target name one of 1.2 at the least."""
    missing = [
        f"{case.level} {case.id}"
        for case in all_cases(Selection())
        if case.can_fail("1.2" if case.version == NEWEST else case.version)
        and not case.sentence("1.2" if case.version == NEWEST else case.version)
    ]
    assert not missing, "FAILED would rest on nothing:\n" + "\n".join(missing)


def test_a_strong_case_that_can_not_be_failed_is_none() -> None:
    """A level of MUST or FACT is a promise that the case may be FAILED."""
    weak = [
        f"{case.level} {case.id}"
        for case in all_cases(Selection())
        if case.level in ("MUST", "FACT")
        and not case.informational
        and not case.can_fail("1.2" if case.version == NEWEST else case.version)
    ]
    assert weak == []


def test_statements_of_all_versions() -> None:
    assert statements("bnf/frame-stream", "bnf/stream") == (
        "1.0/bnf/frame-stream",
        "1.1/bnf/stream",
        "1.2/bnf/stream",
    )
    with pytest.raises(ValueError, match="no/such is not in the catalogue"):
        statements("send/delivers", "no/such")
