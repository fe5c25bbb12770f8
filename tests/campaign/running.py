"""Run a seed from the plan to the verdict."""

from __future__ import annotations

import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from tests.campaign.checker import Finding, check
from tests.campaign.drain import drain
from tests.campaign.faults import FAULTS, Fault, fault_of
from tests.campaign.history import Event, write
from tests.campaign.plan import Plan
from tests.campaign.scene import Scene, Script
from tests.campaign.stage import Line
from tests.campaign.wire import LOCAL

__all__ = ["Clients", "Verdict", "plan_of", "run", "run_seed"]

#: Most violations that are kept; one of them often causes many.
_MOST_KEPT: Final = 20
#: A text in a broker's log that is reported.
_COMPLAINT: Final = "Traceback"


class Verdict(Struct, frozen=True, kw_only=True):
    """The result of a run."""

    seed: int
    fault: str
    #: Number of violations by rule, and the first of them in words.
    violations: dict[str, int]
    texts: list[str]
    #: Another failure: a broker that did not start, clients without progress.
    problem: str
    counts: dict[str, int]
    #: Number of unexpected errors in the broker's log.
    tracebacks: int
    #: Duration in seconds.
    took_s: float

    @property
    def is_good(self) -> bool:
        """True if all guarantees were kept."""
        return not (self.violations or self.problem)


def plan_of(seed: int) -> Plan:
    """Return the plan of a seed."""
    plan = Plan(seed=seed, fault=fault_of(seed), quota=0)
    quota = plan.chance("quota").randint(1_050, 1_400)
    return Plan(seed=seed, fault=plan.fault, quota=quota)


def run_seed(seed: int, report: Path, *, sync: str = "always") -> Verdict:
    """Run a seed."""
    return run(plan_of(seed), report, sync=sync)


def run(
    plan: Plan, report: Path, *, sync: str = "always", fault: Fault | Line | None = None
) -> Verdict:
    """Run a plan; a failed run leaves its history and all logs in ``report``.

    ``fault`` replaces the fault of the plan.
    """
    fault = FAULTS[plan.fault] if fault is None else fault
    seed, begun = plan.seed, time.perf_counter()
    directory = Path(tempfile.mkdtemp(prefix=f"stompkit-campaign-{seed}-"))
    problem = ""
    try:
        if isinstance(fault, Line):
            stage = fault.stage(plan, directory, report)
        else:
            stage = Clients(plan, fault, directory, report, sync)
        try:
            stage.play()
        except Exception:
            problem = traceback.format_exc(limit=-6)
        finding, log, events = stage.check(), stage.log, stage.events
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    violations = finding.violations if not problem else []
    verdict = Verdict(
        seed=seed,
        fault=plan.fault,
        violations=dict(Counter(violation.rule for violation in violations)),
        texts=[f"{each.rule}: {each.text}" for each in violations[:_MOST_KEPT]],
        problem=problem,
        counts=dict(finding.counts),
        tracebacks=log.count(_COMPLAINT),
        took_s=round(time.perf_counter() - begun, 2),
    )
    if not verdict.is_good or verdict.tracebacks:
        write(report / f"campaign-{seed}.jsonl", events)
        (report / f"campaign-{seed}.log").write_text(log, encoding="utf-8")
    return verdict


class Clients:
    """Clients that use a broker; a :class:`tests.campaign.stage.Stage`."""

    def __init__(
        self, plan: Plan, fault: Fault, directory: Path, report: Path, sync: str = "always"
    ) -> None:
        """Prepare without starting anything."""
        self._fault = fault
        self._scene = Scene(plan, fault.needs, directory, report, sync)
        self.log = ""

    def play(self) -> None:
        """Run it."""
        with self._scene as scene:
            try:
                _play(scene, self._fault)
            finally:
                self.log = scene.brokers.log

    @property
    def events(self) -> Sequence[Event]:
        """Return the history of the clients."""
        return self._scene.recorder.events

    def check(self) -> Finding:
        """Check the history."""
        return check(self.events)


def _play(scene: Scene, fault: Fault) -> None:
    for until in _script(scene, fault):
        scene.wait(until)
    scene.wait(scene.reached(1.0))
    chance = scene.plan.chance("end")
    scene.load.leave(all_of_them=chance.random() < 0.3)
    draw = chance.random()
    if draw < 0.3:
        scene.stop()
    elif draw < 0.6 and scene.disk is not None and scene.disk.can_lose_power:
        scene.crash(power=True)
    else:
        scene.crash()
    drain((LOCAL, scene.brokers.active.port), scene.recorder)


def _script(scene: Scene, fault: Fault) -> Script:
    rounds = scene.plan.rounds or fault.rounds
    moments = scene.moments(rounds)
    late = scene.plan.chance("late").randrange(rounds + 1)
    for number, share in enumerate(moments):
        yield scene.reached(share)
        if number == late:
            scene.load.let_late_one_try()
        yield from fault.round(scene)
