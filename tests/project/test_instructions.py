"""The broker needs no more instructions for a message than the recorded number."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks._compiled import tree
from benchmarks.instructions import _counting
from benchmarks.instructions._baseline import (
    FEWER_PERCENT,
    MORE_PERCENT,
    build,
    faults,
    load,
    record,
)
from benchmarks.instructions._scenarios import SCENARIOS

HOW = "`python -m benchmarks.instructions --record` records"


@pytest.mark.parametrize("name", SCENARIOS)
def test_everything_arrives_that_is_counted(name: str) -> None:
    _counting.check([name])


# Users run the compiled modules. Both variants change together, and valgrind takes a minute for
# each.
@pytest.mark.matrix
@pytest.mark.parametrize("compiled", [False, True], ids=["python", "compiled"])
def test_a_message_needs_as_many_instructions_as_recorded(*, compiled: bool) -> None:
    missing = _counting.missing()
    if missing is not None and os.environ.get("STOMPKIT_MQ_MISSING") == "fail":
        pytest.fail(missing)
    if missing is not None:
        pytest.skip(missing)
    what = build(compiled=compiled)
    recorded = load().get(what)
    if recorded is None:
        pytest.skip(f"there is no baseline of {what}: {HOW} one")
    counted = _counting.count(list(SCENARIOS), tree=tree() if compiled else None)
    found = faults(counted, recorded)
    assert not found, "\n".join([*found, f"{HOW} what is meant to be so"])


@pytest.mark.parametrize(
    ("percent", "said"),
    [
        (MORE_PERCENT + 0.1, "3.1 % more"),
        (-FEWER_PERCENT - 0.1, "5.1 % fewer; record that"),
    ],
)
def test_what_is_out_of_bounds_is_said(percent: float, said: str) -> None:
    counted = {"a": 1_000 * (100 + percent) / 100, "b": 1_000.0}
    [fault] = faults(counted, {"a": 1_000, "b": 1_000})
    assert fault.startswith("a: ")
    assert fault.endswith(said)


@pytest.mark.parametrize("percent", [MORE_PERCENT - 0.1, -FEWER_PERCENT + 0.1, 0.0])
def test_what_is_within_bounds_is_not(percent: float) -> None:
    assert faults({"a": 1_000 * (100 + percent) / 100}, {"a": 1_000}) == []


def test_a_scenario_that_is_new_or_gone_is_said() -> None:
    assert faults({"new": 1.0}, {"gone": 1.0}) == [
        "gone: only recorded; record again",
        "new: only counted; record again",
    ]


def test_what_is_recorded_of_other_builds_stays(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text('{"another": {"a": 1}}')
    record({"a": 2.4}, path)
    assert load(path) == {"another": {"a": 1}, build(): {"a": 2}}
