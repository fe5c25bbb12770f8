"""The catalogue of requirements is consistent with the cases."""

from __future__ import annotations

import pytest

from stompkit.conformance.requirements import catalogue
from stompkit.conformance.runner import Selection, all_cases


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
