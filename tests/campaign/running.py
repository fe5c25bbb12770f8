"""Runs a seed from its beginning to its verdict."""

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

__all__ = ["Clients", "Verdict", "plan_of", "run", "run_seed"]

#: How many violations are kept; one of them often makes many.
_MOST_KEPT: Final = 20
#: What makes a broker's log worth a look.
_COMPLAINT: Final = "Traceback"


class Verdict(Struct, frozen=True, kw_only=True):
    """What came of a run."""

    seed: int
    fault: str
    #: Violations by their rules, and the first of them in words.
    violations: dict[str, int]
    texts: list[str]
    #: What went wrong otherwise: a broker that did not start, clients that got no further.
    problem: str
    counts: dict[str, int]
    #: Errors in the broker's log that it did not expect.
    tracebacks: int
    #: How long it took, in seconds.
    took_s: float

    @property
    def is_good(self) -> bool:
        """Whether all promises were kept."""
        return not (self.violations or self.problem)


def plan_of(seed: int) -> Plan:
    """What a seed stands for."""
    plan = Plan(seed=seed, fault=fault_of(seed), quota=0)
    quota = plan.chance("quota").randint(1_050, 1_400)
    return Plan(seed=seed, fault=plan.fault, quota=quota)


def run_seed(seed: int, report: Path, *, sync: str = "always") -> Verdict:
    """Run a seed."""
    return run(plan_of(seed), report, sync=sync)


def run(
    plan: Plan, report: Path, *, sync: str = "always", fault: Fault | Line | None = None
) -> Verdict:
    """Run a plan; what failed leaves its history and all logs in ``report``.

    ``fault`` is another one than that of the plan's name.
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
    """Clients that are at work with a broker; a :class:`tests.campaign.stage.Stage`."""

    def __init__(
        self, plan: Plan, fault: Fault, directory: Path, report: Path, sync: str = "always"
    ) -> None:
        """Prepare; nothing runs yet."""
        self._fault = fault
        self._scene = Scene(plan, fault.needs, directory, report, sync)
        self.log = ""

    def play(self) -> None:
        """Make it."""
        with self._scene as scene:
            try:
                _play(scene, self._fault)
            finally:
                self.log = scene.brokers.log

    @property
    def events(self) -> Sequence[Event]:
        """What clients have seen."""
        return self._scene.recorder.events

    def check(self) -> Finding:
        """Judge it."""
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
    drain(scene.brokers.active.port, scene.recorder)


def _script(scene: Scene, fault: Fault) -> Script:
    rounds = scene.plan.rounds or fault.rounds
    moments = scene.moments(rounds)
    late = scene.plan.chance("late").randrange(rounds + 1)
    for number, share in enumerate(moments):
        yield scene.reached(share)
        if number == late:
            scene.load.let_late_one_try()
        yield from fault.round(scene)
