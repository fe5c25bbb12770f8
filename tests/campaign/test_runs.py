"""Short runs with each fault keep all guarantees; brokers that break some are detected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.chain import Misfortune
from tests.campaign.disk import NoCompiler, built
from tests.campaign.faults import FAULTS, Fault, fault_of
from tests.campaign.history import read
from tests.campaign.lines import LINES, RARE
from tests.campaign.plan import Plan
from tests.campaign.replicated import Replicated
from tests.campaign.running import plan_of, run
from tests.campaign.scene import Needs, Scene, Script
from tests.campaign.spooled import Spooled
from tests.campaign.stage import Line, Stage
from tests.effort import effort, in_matrix

SEEDS = effort((1,), range(1, 6))
#: Faults of the quick lane: those that other tests do not combine with a running load.
QUICK = {"kill", "power", "mixed"}
#: Number of messages of a run, and of rounds of the fault; 0 for as many as in the campaign.
QUOTA = effort(120, 1_200)
#: Spark takes too long for each day; it has separate tests.
LINES_HERE = [name for name in LINES if effort(name != RARE, campaign=True)]
#: Runs whose data ends in one place.
PROGRAMS = ("spool", "bridge", "replication", "pipeline")
ROUNDS = effort(1, 0)


def in_lanes(faults: list[str]) -> list[Any]:
    """Return parameters; most faults are for the matrix lane."""
    return [each if each in QUICK else in_matrix(each) for each in faults]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder where runs leave histories and logs."""
    folder = tmp_path_factory.mktemp("campaign")
    try:
        built(folder)
    except NoCompiler as error:
        pytest.skip(str(error))
    return folder


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", in_lanes([name for name in FAULTS if name not in LINES]))
def test_promises_are_kept(fault: str, seed: int, report: Path) -> None:
    plan = Plan(seed=seed, fault=fault, quota=QUOTA, rounds=ROUNDS)
    verdict = run(plan, report)
    assert not verdict.problem, verdict.problem
    assert verdict.texts == []
    assert verdict.counts["receipted"] >= QUOTA
    assert verdict.counts["delivered"] > 0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", in_lanes(LINES_HERE))
def test_programs_that_work_together_keep_their_promises(
    fault: str, seed: int, report: Path
) -> None:
    missing = LINES[fault].missing()
    if missing:
        pytest.skip(f"this needs {missing}")
    verdict = run(Plan(seed=seed, fault=fault, quota=QUOTA, rounds=ROUNDS), report)
    assert not verdict.problem, verdict.problem
    assert verdict.texts == []
    assert verdict.counts["receipted"] >= QUOTA // 3
    if fault in PROGRAMS:
        assert verdict.counts["settled"] >= verdict.counts["receipted"]


class _Careless(Spooled):
    """A receiver that takes every sent message as received, on a network that loses one."""

    patience_s = 1.0

    def options(self) -> list[str]:
        return ["--ack", "auto"]

    def misfortunes(self) -> list[Misfortune]:
        return [lambda: None]

    def begin(self) -> None:
        self.chain.proxy.drop("MESSAGE", nth=5)
        super().begin()


class _Forgetful(Replicated):
    """A replica that confirms all changes, but has not applied all."""

    patience_s = 1.0

    def misfortunes(self) -> list[Misfortune]:
        return [lambda: None]

    def begin(self) -> None:
        super().begin()
        self.replicas[0].execute(
            "CREATE TRIGGER forget BEFORE INSERT ON events WHEN new.id = 30"
            " BEGIN SELECT RAISE(IGNORE); END"
        )


@pytest.mark.matrix
@pytest.mark.parametrize(("kind", "stage"), [("spool", _Careless), ("replication", _Forgetful)])
def test_programs_that_lose_something_are_found_out(
    kind: str, stage: Callable[[Plan, Path, Path], Stage], report: Path
) -> None:
    plan = Plan(seed=1, fault=kind, quota=100, rounds=1)
    verdict = run(plan, report, fault=Line("a liar", stage))
    assert not verdict.problem, verdict.problem
    assert verdict.violations["lost"] > 0
    assert (report / f"campaign-{plan.seed}.jsonl").read_bytes().count(b"\n") > 30


def _twice(scene: Scene) -> Script:
    assert scene.proxy is not None
    with scene.proxy.duplicate("MESSAGE", every=20):
        yield scene.reached(0.9)


def _overtaken(scene: Scene) -> Script:
    assert scene.proxy is not None
    with scene.proxy.reorder("MESSAGE", every=5):
        yield scene.reached(0.9)


def _dropped(scene: Scene) -> Script:
    assert scene.proxy is not None
    with scene.proxy.drop("MESSAGE", every=10):
        yield scene.reached(0.9)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("script", "rule"), [(_twice, "doubled"), (_overtaken, "order"), (_dropped, "lost")]
)
def test_a_broker_that_is_not_as_good_as_its_promises_is_found_out(
    script: Callable[[Scene], Script], rule: str, report: Path
) -> None:
    """The network between a correct broker and its clients breaks the guarantee."""
    fault = Fault("a liar", script, Needs(proxy=True), 1)
    plan = Plan(seed=1, fault="cut", quota=400)
    verdict = run(plan, report, fault=fault)
    assert rule in verdict.violations
    # The history is available.
    history = read(report / f"campaign-{plan.seed}.jsonl")
    assert len(history) > plan.quota


def test_a_disk_that_was_never_told_to_sync_loses_what_had_its_receipt(report: Path) -> None:
    plan = Plan(seed=1, fault="power", quota=300, rounds=1)
    verdict = run(plan, report, sync="never")
    assert verdict.violations["lost"] > 0


def test_a_seed_says_what_a_run_is() -> None:
    assert plan_of(17) == plan_of(17)
    assert plan_of(17).quota >= 1_000
    faults = [fault_of(seed) for seed in range(1, 1_001)]
    assert set(faults) == set(FAULTS)
    counts = Counter(faults)
    assert counts.pop(RARE) == 10
    assert max(counts.values()) - min(counts.values()) <= 1
