"""How many instructions of the processor a message takes, by valgrind; compared with a baseline.

Each scenario goes through the broker's protocol without sockets, in chunks as large as Twisted
reads them, with bodies of 100 octets; the figure is that of one delivery, what the client in
memory does included. It is the difference between two forks of one process, of which one sends
no messages: the start is not part of it. What else runs on the machine does not matter.

All is counted twice: as Python, and with what a wheel has compiled.

The baseline is that of one build of Python. After a change that is meant to need more or fewer,
and with each new Python, record it::

    python -m benchmarks.instructions --record
"""

from __future__ import annotations

import argparse
import sys

from benchmarks._compiled import Uncompilable, tree
from benchmarks._report import unusable
from benchmarks.instructions._baseline import BASELINE, build, faults, load, record
from benchmarks.instructions._counting import Uncountable, check, count
from benchmarks.instructions._scenarios import SCENARIOS


def main() -> int:
    """Read the command line, count and compare; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--record", action="store_true", help="make this the baseline")
    given = parser.parse_args()
    check(list(SCENARIOS))
    found: list[str] = []
    for compiled in (False, True):
        try:
            counted = count(list(SCENARIOS), tree=tree() if compiled else None)
        except (Uncountable, Uncompilable) as reason:
            raise unusable(str(reason)) from None
        found += _compared(counted, compiled=compiled, is_recorded=given.record)
    if given.record:
        print(f"Recorded in {BASELINE.name}.")
        return 0
    print("\n".join(found) or "As recorded.")
    return 1 if found else 0


def _compared(counted: dict[str, float], *, compiled: bool, is_recorded: bool) -> list[str]:
    """Print figures beside the recorded ones, and record them on request; return the faults."""
    what = build(compiled=compiled)
    recorded = load().get(what) if BASELINE.exists() else None
    print(f"Instructions for each delivery, {what}\n")
    for name, figure in counted.items():
        before = recorded.get(name) if recorded else None
        change = f"{(figure / before - 1) * 100:+7.1f} %" if before else ""
        print(f"{name:<26}{figure:>12,.0f}{change}")
    print()
    if is_recorded:
        record(counted, compiled=compiled)
        return []
    if recorded is None:
        raise unusable(f"There is no baseline of {what}: make one with --record.")
    return faults(counted, recorded)


if __name__ == "__main__":
    sys.exit(main())
