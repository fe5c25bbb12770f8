"""The catalogue of requirements is consistent with the cases."""

from __future__ import annotations

import pytest

from stompkit.conformance.case import NEWEST, Case
from stompkit.conformance.clients.command import client_cases
from stompkit.conformance.requirements import catalogue, statements
from stompkit.conformance.run.runner import Selection, all_cases
from stompkit.frames import VERSIONS


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


def cases_of_both_suites() -> list[Case]:
    """Return the cases about servers and those about clients."""
    return [*all_cases(Selection()), *client_cases()]


def test_statement_that_a_case_can_be_about_has_its_sentence() -> None:
    about_clients = {each for case in client_cases() for each in case.requirements}
    for each in catalogue().values():
        is_tested = each.observable_by_client or each.id in about_clients
        assert bool(each.sentence) is is_tested, each.id
        assert each.sentence.isprintable(), each.id


def test_a_case_that_can_be_failed_names_its_sentence() -> None:
    """On the newest version of the target, each version either has a sentence, or cannot fail."""
    missing = [
        f"{case.level} {case.id} on {version}"
        for case in cases_of_both_suites()
        for version in (VERSIONS if case.version == NEWEST else (case.version,))
        if case.can_fail(version) and not case.sentence(version)
    ]
    assert not missing, "FAILED would rest on nothing:\n" + "\n".join(missing)


def test_a_strong_case_that_can_not_be_failed_is_none() -> None:
    """A level of MUST or FACT is a promise that the case may be FAILED."""
    weak = [
        f"{case.level} {case.id}"
        for case in cases_of_both_suites()
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
