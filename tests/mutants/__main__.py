"""Draws mutants, runs tests on them, and compares two suites; see the package."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.mutants.drawing import draw, sources_of_commit
from tests.mutants.mutant import SET

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
    return parser.parse_args(arguments)


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


def main(arguments: list[str] | None = None) -> int:
    """Do as the command line says; return the exit status."""
    options = _options(arguments)
    status: int = options.call(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
