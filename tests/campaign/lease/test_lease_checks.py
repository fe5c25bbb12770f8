"""The checker finds two active brokers, and takes the lives of connections from terms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.history import Began, Ended, Event, Opened, Setting, Wrote
from tests.campaign.lease.checks import ACTIVE, FAULTS_NOTE, check_lease, with_terms, writes
from tests.campaign.lease.members import Term
from tests.campaign.lease.report import lease_table, write_lease_report
from tests.campaign.results import Results
from tests.campaign.running import Verdict

SETTING = Setting({}, {})
CLOSED = Term(1, is_open=False, is_clean=True)
CRASHED = Term(2, is_open=False, is_clean=False)
LAST = Term(3, is_open=True, is_clean=False)


def rules(*events: Event) -> list[str]:
    return [each.rule for each in check_lease([SETTING, *events]).violations]


def test_stamps_show_the_terms_of_brokers() -> None:
    stamps = ["1.1.aa", "1.2.aa", "a.1.bb", "a.2.bb", "a.3.cc"]
    assert list(writes(stamps)) == [Wrote(1, "aa"), Wrote(10, "bb"), Wrote(10, "cc")]


def test_brokers_that_write_one_after_the_other_keep_the_rule() -> None:
    assert rules(Began(1), Began(2), Wrote(1, "aa"), Wrote(2, "bb"), Wrote(5, "cc")) == []


@pytest.mark.parametrize(
    "events",
    [
        pytest.param((Wrote(2, "bb"), Wrote(1, "aa")), id="a commit after a takeover"),
        pytest.param((Wrote(1, "aa"), Wrote(1, "bb")), id="two writers in an epoch"),
        pytest.param((Began(1), Began(1)), id="two owners of an epoch"),
    ],
)
def test_two_active_brokers_are_found(events: tuple[Event, ...]) -> None:
    assert rules(*events) == [ACTIVE]


def test_terms_become_the_lives_of_a_history() -> None:
    history = with_terms([SETTING], [LAST, CLOSED, CRASHED], [])
    lives = [Began(1), Ended(1, "stop"), Began(2), Ended(2, "crash"), Began(3)]
    assert history == [SETTING, *lives]


def test_a_session_belongs_to_no_later_term_than_the_next_session_of_its_process() -> None:
    opened = [Opened(number, "c", 0) for number in (1, 2, 3)]
    # The client has seen the beginning of the first one when its broker was active again.
    sessions = [("p-1", 3), ("p-2", 1), ("q-1", 2)]
    assert with_terms([SETTING, *opened], [], sessions)[1:] == [
        Opened(1, "c", 1),
        Opened(2, "c", 1),
        Opened(3, "c", 2),
    ]


def test_the_results_are_written_into_the_page(tmp_path: Path) -> None:
    results = Results(tmp_path / "lease.jsonl")
    counts = {"receipted": 1_200, f"{FAULTS_NOTE}kill": 1}
    for seed, violations in (1, {}), (2, {ACTIVE: 1}):
        results.add(
            Verdict(
                seed=seed,
                fault="lease",
                violations=violations,
                texts=[],
                problem="",
                counts=counts,
                tracebacks=0,
                took_s=1.0,
            )
        )
    table = lease_table(results)
    assert "   * - messages with a receipt\n     - 2,400\n" in table
    assert "   * - runs with the fault ``kill``\n     - 2\n" in table
    assert "   * - violations ``active``\n     - 1\n" in table
    page = tmp_path / "lease.rst"
    begin = ".. what follows is made by python -m tests.campaign lease-report\n"
    page.write_text(f"before\n{begin}old\n.. end of what is made\nafter\n", encoding="utf-8")
    assert write_lease_report(results, tmp_path) == 0
    text = page.read_text(encoding="utf-8")
    assert table in text
    assert "old" not in text
    assert text.endswith(".. end of what is made\nafter\n")
