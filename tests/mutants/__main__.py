"""Draw mutants, run tests on them, and compare two suites; see the package."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.choosing import Chooser, TestMap, covering, measured_files, seconds_of
from tests.mutants.confirming import Lane
from tests.mutants.drawing import draw, sources_of, sources_of_commit
from tests.mutants.mutant import SET, Mutant, MutantSet
from tests.mutants.results import FOUND, Results, comparison, summary
from tests.mutants.running import Runner, Settings, in_groups
from tests.mutants.sessions import end_all

_ROOT = Path(__file__).parents[2]


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description="Mutation testing with a set that is kept."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("draw", help="draw mutants from a commit")
    add = command.add_argument
    add("--seed", type=int, required=True)
    add("--count", type=int, required=True)
    add("--commit", default="HEAD", help="(default: %(default)s)")
    add("--tree", type=Path, default=_ROOT, help="a clone that has the commit (default: this one)")
    add("--out", type=Path, default=SET, help="(default: %(default)s)")
    command.set_defaults(call=_draw)
    command = commands.add_parser("map", help="find out which test files execute each mutant")
    add = command.add_argument
    _add_set(command)
    add("--coverage", type=Path, required=True, help="data of coverage.py, combined")
    add("--tree", type=Path, required=True, help="the folder that was measured")
    add("--times", type=Path, help="a JUnit report of the same run")
    add("--out", type=Path, required=True)
    command.set_defaults(call=_map)
    command = commands.add_parser("run", help="run tests on mutants")
    _add_running(command)
    command.set_defaults(call=_run)
    command = commands.add_parser("confirm", help="look whether what was found is still found")
    _add_running(command)
    add = command.add_argument
    add("--results", type=Path, required=True, help="what was found before")
    add("--lane", default="", metavar="ARGS", help="arguments of pytest: which tests there are")
    command.set_defaults(call=_confirm)
    command = commands.add_parser("report", help="print results as tables")
    add = command.add_argument
    _add_set(command)
    add("results", type=Path, nargs="+", help="one file; or that before and that after")
    command.set_defaults(call=_report)
    return parser.parse_args(arguments)


def _add_set(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--set", type=Path, default=SET, help="what `draw` has written (default: %(default)s)"
    )


def _add_running(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    _add_set(command)
    add("--tree", type=Path, required=True, help="a clone; its last commit is tested")
    add("--python", type=Path, default=Path(sys.executable), help="(default: %(default)s)")
    add("--map", type=Path, help="what `map` has written; without, test files are guessed")
    add("--only", type=_numbers, metavar="A,B-C", help="the mutants with these numbers")
    add("--again", action="store_true", help="run those that survived once more")
    add("--out", type=Path, required=True, help="results; what is in there is not done again")
    add("--jobs", type=int, default=1, help="mutants at a time (default: %(default)s)")
    add("--budget", type=float, default=90, metavar="S", help="for each (default: %(default)s)")
    add("--hang", type=float, default=120, metavar="S", help="for a test (default: %(default)s)")
    add("--pytest", type=shlex.split, default=[], metavar="ARGS", help="arguments of each run")
    add("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "mutants")


def _numbers(text: str) -> frozenset[int]:
    spans = (part.partition("-") for part in text.split(","))
    return frozenset(
        number
        for first, dash, last in spans
        for number in range(int(first), int(last if dash else first) + 1)
    )


def _draw(options: argparse.Namespace) -> int:
    commit = subprocess.run(
        ["git", "rev-parse", "--verify", f"{options.commit}^{{commit}}"],
        cwd=options.tree,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    sources = sources_of_commit(options.tree, commit)
    drawn = draw(sources, seed=options.seed, count=options.count, commit=commit)
    drawn.write(options.out)
    parts = Counter(mutant.part for mutant in drawn.mutants)
    print(f"{len(drawn.mutants)} mutants of {commit[:7]} in {options.out}:")
    print(", ".join(f"{part} {number}" for part, number in parts.items()))
    return 0


def _map(options: argparse.Namespace) -> int:
    mutants = MutantSet.read(options.set).mutants
    tree = options.tree.resolve()
    files = covering(mutants, options.coverage, tree, sources_of(tree))
    seconds = seconds_of(options.times) if options.times else {}
    measured = measured_files(options.coverage)
    TestMap(files=files, seconds=seconds, measured=measured).write(options.out)
    number = sum(map(bool, files.values()))
    print(f"{number} of {len(mutants)} mutants are executed by {len(measured)} test files")
    return 0


def _runner(options: argparse.Namespace, results: Results) -> Runner:
    """Create the runner of tests, and complete the checks of an interrupted run."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    settings = Settings(
        tree=options.tree.resolve(),
        # An environment is identified by the link to its Python.
        python=options.python.absolute(),
        scratch=options.scratch.resolve(),
        jobs=options.jobs,
        budget_s=options.budget,
        hang_s=options.hang,
        arguments=options.pytest,
    )
    runner = Runner(settings, results, _say)
    runner.check()
    return runner


def _say(text: str) -> None:
    print(text, flush=True)


def _chooser(options: argparse.Namespace, tree: Path) -> Chooser:
    return Chooser(tree, TestMap.read(options.map) if options.map else None)


def _run(options: argparse.Namespace) -> int:
    mutants = MutantSet.read(options.set).mutants
    results = Results(options.out)
    runner = _runner(options, results)
    chooser = _chooser(options, runner.copy.folder)
    wanted = [each for each in mutants if _is_to_do(results, each.id, options)]
    runner.run(wanted, lambda mutant: in_groups(chooser.files(mutant)), found_by={})
    print("\n".join(summary(results, mutants)))
    return 0


def _is_to_do(results: Results, number: int, options: argparse.Namespace) -> bool:
    if options.only is not None and number not in options.only:
        return False
    outcome = results.outcomes.get(number)
    if outcome is None or (options.again and outcome.outcome == "survived"):
        return True
    return outcome.outcome in FOUND and not results.is_found(number)


def _confirm(options: argparse.Namespace) -> int:
    before, after = Results(options.results), Results(options.out)
    mutants = MutantSet.read(options.set).mutants
    runner = _runner(options, after)
    tests = runner.collect(shlex.split(options.lane))
    print(f"{len(tests)} tests are in the lane", flush=True)
    lane = Lane(tests, before, _chooser(options, runner.copy.folder))
    found = [mutant for mutant in mutants if before.is_found(mutant.id)]
    known = {mutant.id: before.outcomes[mutant.id].test for mutant in found}
    wanted = [mutant for mutant in found if _is_to_do(after, mutant.id, options)]
    runner.run(wanted, lane.plan, found_by=known)
    return _compared(before, after, mutants)


def _report(options: argparse.Namespace) -> int:
    files = [Results(path) for path in options.results]
    mutants = MutantSet.read(options.set).mutants
    if len(files) > 1:
        return _compared(files[0], files[1], mutants)
    print("\n".join(summary(files[0], mutants)))
    return 0


def _compared(before: Results, after: Results, mutants: Sequence[Mutant]) -> int:
    """Print the results for the mutants found before; return 1 if some are not found any more."""
    print("\n".join(comparison(before, after, mutants)))
    lost = [
        mutant for mutant in mutants if before.is_found(mutant.id) and not after.is_found(mutant.id)
    ]
    for mutant in lost:
        outcome = after.outcomes.get(mutant.id)
        print(f"\n{mutant.id}, {mutant.file}:{mutant.line} {mutant.scope}, {mutant.operator}:")
        print(f"{outcome.outcome if outcome else 'not run'}; before, it was found by")
        print(f"{before.outcomes[mutant.id].test}")
        print(f"{mutant.before}\n  became\n{mutant.after}")
    return 1 if lost else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = _options(arguments)
    status: int = options.call(options)
    return status


def _stop(number: int, _: object) -> None:
    """End all runs and this process, whatever its threads do."""
    end_all()
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
