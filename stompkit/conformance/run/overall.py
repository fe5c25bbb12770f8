"""The judgement on what the frames of a whole run have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stompkit.conformance.verdict import CaseResult, Verdict

__all__ = ["judge_run"]


def judge_run(results: Sequence[CaseResult]) -> list[CaseResult]:
    """Return the results of a run, in which each violation seen counts in the case about it.

    A case may have seen what another one is about. If that other one is not part of the run, the
    violation is a note.
    """
    judges = _judges(results)
    for result in results:
        for rule, seen in result.violations.items():
            if judge := judges.get(rule):
                _fail(judge, f"in the case {result.id}: {seen}")
            else:
                result.notes.append(f"{rule}, which is not among the cases, is violated: {seen}")
    return list(results)


def _judges(results: Sequence[CaseResult]) -> Mapping[str, CaseResult]:
    """Return the case about each statement: the one with its name, or else the first one."""
    found = {result.id: result for result in results}
    for result in results:
        for requirement in result.requirements:
            found.setdefault(requirement, result)
    return found


def _fail(result: CaseResult, detail: str) -> None:
    """Make a case FAILED, unless it is already, or no sentence allows that."""
    if result.verdict is not Verdict.FAILED and result.sentence:
        result.verdict, result.detail = Verdict.FAILED, detail
