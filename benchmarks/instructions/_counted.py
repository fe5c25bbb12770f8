"""The program that valgrind runs: makes each scenario ready twice, and goes through it once.

Its arguments are the directories to import from, then ``--``, the number of messages, and the
names of the scenarios. For each it prints two processes: one that has made it ready, and one that
has gone through it as well. Both are forks that go on counting where their parent was, so that
their counts differ by nothing but the messages.
"""

from __future__ import annotations

import gc
import os
import sys

__all__ = ["main"]


def main(messages: int, names: list[str]) -> int:
    """Do all of them, one after the other; gives the exit status."""
    # Here, since the path has to be set first.
    from benchmarks.instructions._scenarios import SCENARIOS

    # How much there is to import is no part of the work, whenever the collector runs.
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
                return 1  # it has said why
            print(process, end="\n" if is_run else " ")
    return 0


if __name__ == "__main__":
    at = sys.argv.index("--")
    sys.path[:] = sys.argv[1:at]
    sys.exit(main(int(sys.argv[at + 1]), sys.argv[at + 2 :]))
