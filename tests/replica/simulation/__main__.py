"""Replay a seed, or run many.

::

    python -m tests.replica.simulation --seed 17
    python -m tests.replica.simulation --seeds 0-9999 --jobs 2
"""

from __future__ import annotations

import argparse
import logging
import sys

from tests.replica.simulation.running import campaign, told, trace_of


def _range(text: str) -> range:
    first, separator, last = text.partition("-")
    return range(int(first), int(last if separator else first) + 1)


def main() -> int:
    """Run the command line; return 1 if a seed failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.replica.simulation", description="Simulates replicas."
    )
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--seed", type=int, help="run this one, and print what happens")
    wanted.add_argument("--seeds", type=_range, metavar="FROM-TO", help="run all of these")
    parser.add_argument("--jobs", type=int, default=1, help="in so many processes")
    options = parser.parse_args()
    # Replicas log the faults that are injected here.
    logging.disable()
    if options.seed is None:
        return 1 if told(campaign(options.seeds, options.jobs)) else 0
    lines, problem = trace_of(options.seed)
    print("\n".join(lines))
    if problem:
        print(f"\nseed {options.seed} failed\n{problem}", file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
