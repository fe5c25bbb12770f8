"""The program that valgrind runs: it prepares each scenario twice, and runs it once.

Its arguments are the directories to import from, then ``--``, the number of messages, and the names
of the scenarios. For each it prints two processes: one that has prepared it, and one that has also
run it. Both are forks that continue the count of their parent, so that their counts differ by the
messages only.
"""

from __future__ import annotations

import gc
import os
import sys

__all__ = ["main"]


def main(messages: int, names: list[str]) -> int:
    """Run all of them, one after the other; return the exit status."""
    # Imported here, since the path has to be set first.
    from benchmarks.instructions._scenarios import SCENARIOS

    # The imported objects must not count, whenever the garbage collector runs.
    gc.collect()
    gc.freeze()
    for name in names:
        for is_run in (False, True):
            process = os.fork()
            if process == 0:
                scenario = SCENARIOS[name].make(messages)
                if is_run:
                    scenario.run()
                os._exit(0)
            if os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]):
                return 1  # it has printed the reason
            print(process, end="\n" if is_run else " ")
    return 0


if __name__ == "__main__":
    at = sys.argv.index("--")
    sys.path[:] = sys.argv[1:at]
    sys.exit(main(int(sys.argv[at + 1]), sys.argv[at + 2 :]))
