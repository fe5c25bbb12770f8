"""Short runs with each fault keep all promises; brokers that break some are found out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.campaign.disk import NoCompiler, built
from tests.campaign.faults import FAULTS, Fault, fault_of
from tests.campaign.history import read
from tests.campaign.plan import Plan
from tests.campaign.running import plan_of, run
from tests.campaign.scene import Needs, Scene, Script
from tests.effort import effort

SEEDS = effort((1,), range(1, 6))
#: Messages of a run, and how often something happens; 0 for as often as in the campaign.
QUOTA = effort(120, 1_200)
ROUNDS = effort(1, 0)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs leave what they have found."""
    folder = tmp_path_factory.mktemp("campaign")
    try:
        built(folder)
    except NoCompiler as error:
        pytest.skip(str(error))
    return folder


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_promises_are_kept(fault: str, seed: int, report: Path) -> None:
    plan = Plan(seed=seed, fault=fault, quota=QUOTA, rounds=ROUNDS)
    verdict = run(plan, report)
    assert verdict.problem == ""
    assert verdict.texts == []
    assert verdict.counts["receipted"] >= QUOTA
    assert verdict.counts["delivered"] > 0


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


@pytest.mark.parametrize(
    ("script", "rule"), [(_twice, "doubled"), (_overtaken, "order"), (_dropped, "lost")]
)
def test_a_broker_that_is_not_as_good_as_its_promises_is_found_out(
    script: Callable[[Scene], Script], rule: str, report: Path
) -> None:
    """What stands between it and its clients makes it so."""
    fault = Fault("a liar", script, Needs(proxy=True), 1)
    plan = Plan(seed=1, fault="cut", quota=400)
    verdict = run(plan, report, fault=fault)
    assert rule in verdict.violations
    # It can be looked at.
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
    counts = [faults.count(name) for name in FAULTS]
    assert max(counts) - min(counts) <= 1
