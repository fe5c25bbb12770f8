"""Coverage-guided fuzzing: libFuzzer, by atheris, makes inputs that take new branches.

    python -m fuzz --list
    python -m fuzz --seconds 600 --jobs 2              all targets, ten minutes of CPU each
    python -m fuzz --targets frames,stomp --seconds 60
    python -m fuzz.frames FILE...                      try inputs again, as one that was found
    python -m fuzz --keep                              take what runs have found into fuzz/corpus
    python -m fuzz --record report/fuzz/summaries/*    add runs up in fuzz/results.json

An exception that is none of those that are documented, an input that takes a second of the
processor's time (five while branches are counted), and memory beyond the limits are findings. The
exit status is 1 then, and the input is in report/fuzz/findings. It takes atheris, which has wheels
for CPython on Linux: pip install atheris. docs/explanation/fuzzing.rst has more.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from fuzz._campaign import Outcome, campaign, minimise, summary_path
from fuzz._results import record
from fuzz._targets import TARGETS


def main() -> int:
    """Read the command line and run targets; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--list", action="store_true", help="list the targets")
    parser.add_argument("--targets", metavar="NAMES", help="some of them, with commas in between")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="seconds of CPU for each target (60)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time (1)")
    parser.add_argument(
        "--work", type=Path, default=Path("report/fuzz"), help="where everything goes (report/fuzz)"
    )
    parser.add_argument("--keep", action="store_true", help="minimise inputs into fuzz/corpus")
    parser.add_argument(
        "--record", type=Path, nargs="+", metavar="SUMMARY", help="add summaries of runs up"
    )
    given = parser.parse_args()
    names = given.targets.split(",") if given.targets else list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        parser.error(f"there is no target {unknown[0]}: there are {', '.join(TARGETS)}")
    if given.list:
        for name in names:
            print(f"{name:<12}{TARGETS[name].about}")
        return 0
    if given.record:
        for summary in given.record:
            print(record(summary))
        return 0
    if importlib.util.find_spec("atheris") is None:
        parser.error(
            "this takes atheris, which has wheels for CPython on Linux: pip install atheris"
        )
    if given.keep:
        for name in names:
            print(f"{name:<12}{minimise(name, given.work):>6} inputs kept")
        return 0
    summary = campaign(names, given.work, seconds=given.seconds, jobs=given.jobs, told=_tell)
    print(f"The summary is in {summary_path(given.work, summary)}")
    return 1 if summary.has_findings else 0


def _tell(name: str, outcome: Outcome) -> None:
    print(
        f"{name:<12}{outcome.executions:>12,} executions{outcome.cpu_seconds:>9.0f} s of CPU"
        f"{outcome.branches:>7,} branches{outcome.inputs:>6,} inputs{outcome.peak_rss_mb:>6} MiB",
        flush=True,
    )
    for finding in outcome.findings:
        print(f"{'':<12}{finding.error}\n{'':<12}{finding.file}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
