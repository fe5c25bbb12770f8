"""Selection of cases."""

from __future__ import annotations

import pytest

from stompkit.conformance.case import Case, case, cases_of
from stompkit.conformance.run.runner import Selection, all_cases
from tests.conformance.conftest import Suite


@case("1.0/ack/acknowledges-consumption", "1.1/ack/acknowledges", "1.2/ack/acknowledges")
def _ack() -> None:
    """One case of each version."""


@case("1.1/ack-mode/client-cumulative", "1.2/ack-mode/client-cumulative")
def _ack_mode() -> None:
    """Its topic begins with the same letters."""


@case("1.2/error/message-header", "1.2/error/body-may")
def _error() -> None:
    """SHOULD, and it covers two requirements."""


CASES: list[Case] = [
    *cases_of(_ack).values(),
    *cases_of(_ack_mode).values(),
    *cases_of(_error).values(),
]
ACK = {"1.0/ack/acknowledges-consumption", "1.1/ack/acknowledges", "1.2/ack/acknowledges"}
ACK_MODE = {"1.1/ack-mode/client-cumulative", "1.2/ack-mode/client-cumulative"}
ERROR = {"1.2/error/message-header"}


@pytest.mark.parametrize(
    ("patterns", "taken"),
    [
        ([], ACK | ACK_MODE | ERROR),
        (["1.2/ack/acknowledges"], {"1.2/ack/acknowledges"}),
        (["1.2/ack"], {"1.2/ack/acknowledges"}),
        (["1.2/ack/"], {"1.2/ack/acknowledges"}),
        (["1.2"], {each for each in ACK | ACK_MODE | ERROR if each.startswith("1.2")}),
        (["1.?/ack"], ACK),
        (["1.?/ack*"], ACK | ACK_MODE),
        (["*/client-cumulative", "1.2/error"], ACK_MODE | ERROR),
        # By a requirement that is not the name of the case.
        (["1.2/error/body-may"], ERROR),
        (["1.2/a"], set()),
        (["ack"], set()),
        ([""], set()),
    ],
)
def test_patterns(patterns: list[str], taken: set[str]) -> None:
    included = Selection(tuple(patterns))
    assert {each.id for each in CASES if included.takes(each)} == taken
    if patterns:
        excluded = Selection(exclude=tuple(patterns))
        assert {each.id for each in CASES if not excluded.takes(each)} == taken
        assert bool(included.unknown(CASES)) is not bool(taken)
        assert excluded.unknown(CASES) == included.unknown(CASES)


def test_levels() -> None:
    assert {each.id for each in CASES if Selection(levels=("SHOULD",)).takes(each)} == ERROR
    both = Selection(levels=("SHOULD", "FACT"), exclude=("1.?/ack",))
    assert {each.id for each in CASES if both.takes(each)} == ACK_MODE | ERROR


def test_list_needs_no_target_and_keeps_the_order_of_the_versions(suite: Suite) -> None:
    done = suite("--list", "--mq", "localhost:1", "1.?/ack", "1.?/begin", "--level", "must,fact")
    assert done.status == 0, done.told
    *lines, count = done.out.splitlines()
    listed = [line for line in lines if not line.startswith(" ")]
    ids = [line.split()[1] for line in listed]
    assert count == f"{len(ids)} cases"
    assert {line.split()[0] for line in listed} == {"MUST", "FACT"}
    assert [each.partition("/")[0] for each in ids] == sorted(
        each.partition("/")[0] for each in ids
    )
    assert {"1.0/begin/starts-transaction", "1.2/begin/starts"} <= set(ids)
    assert not done.err


def test_list_has_the_statement_of_each_case(suite: Suite) -> None:
    done = suite("--list", "1.2/commit/commits", "behaviour/1.2/receipt/unusual-ids")
    assert [line.split() for line in done.out.splitlines() if not line.startswith(" ")] == [
        ["FACT", "1.2/commit/commits"],
        ["FACT", "behaviour/1.2/receipt/unusual-ids"],
        ["2", "cases"],
    ]
    statements = {case.id: case.statement for case in all_cases(Selection())}
    for name in ("1.2/commit/commits", "behaviour/1.2/receipt/unusual-ids"):
        assert statements[name] in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("1.2/sned", "1.2/send"),
        ("behavior/receipt", "behaviour/receipt"),
        ("faliover", "failover"),
        ("1.2/ack/aknowledges", "1.2/ack/acknowledges"),
        ("1.2/ack/id-matches-ack-heder", "1.2/ack/id-matches-ack-header"),
    ],
)
def test_closest_name_is_suggested(typed: str, meant: str, suite: Suite) -> None:
    """A name selects a case, all cases that begin with it, or those that cover a statement."""
    done = suite("--list", typed)
    assert done.status == 2
    assert f"there is no case '{typed}'; did you mean {meant}?" in done.err


def test_what_is_listed_is_run(suite: Suite, mq: str) -> None:
    """The user's settings for pytest have no effect."""
    chosen = ("1.?/begin/transaction-required", "--exclude", "1.1")
    listed = suite("--list", *chosen)
    assert "2 cases" in listed.out
    done = suite("--mq", mq, *chosen, PYTEST_ADDOPTS="--collect-only", PYTEST_PLUGINS="nosuch")
    assert done.status == 0, done.told
    assert "Cases   2\n" in done.out
    assert "2 cases, none failed" in done.out
