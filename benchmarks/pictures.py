"""Pictures of what other programs have measured, out of their JSON, as the documentation has them.

From python -m benchmarks come throughput.svg and latency.svg, from benchmarks.growth growth.svg,
from benchmarks.soak soak.svg. What was measured is neither repeated nor chosen: all that a file has
is drawn. To draw them again::

    python -m benchmarks --json brokers.json
    python -m benchmarks.growth --data /var/tmp --json growth.json
    python -m benchmarks.soak --hours 1 --json soak.json
    python -m benchmarks.pictures --brokers brokers.json --growth growth.json --soak soak.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks._line_plot import Line, line_plot
from benchmarks._report import unusable
from benchmarks.growth import CASES
from benchmarks.load._plot import latency_plot, throughput_plot
from benchmarks.soak._picture import soak_plot

__all__ = ["main"]

_FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "pictures"


def growth_plot(figures: dict[str, float]) -> str:
    """Draw the cost of a message at each size; raise ValueError if there is nothing to draw."""
    lines = []
    for name, case in CASES.items():
        points = [(size, f"{name}_{size}_us") for size in case.sizes]
        found = [(size, figures[key]) for size, key in points if key in figures]
        if found:
            lines.append(Line(case.title, found))
    if not lines:
        raise ValueError("no growth was measured")
    return line_plot("Processor time per message", "how many", "microseconds", lines)


def _read(path: Path, key: str) -> Any:
    """Return a part of the JSON output of a program."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))[key]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise unusable(f"{path} is nothing that could be drawn: {error!r}") from None


def main() -> int:
    """Read the command line, draw; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pictures", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--brokers", type=Path, metavar="FILE", help="what python -m benchmarks has written")
    add("--growth", type=Path, metavar="FILE", help="what benchmarks.growth has written")
    add("--soak", type=Path, metavar="FILE", help="what benchmarks.soak has written")
    add("--into", type=Path, metavar="FOLDER", default=_FOLDER, help="(default: %(default)s)")
    given = parser.parse_args()
    if given.brokers is None and given.growth is None and given.soak is None:
        parser.error("one of --brokers, --growth and --soak is needed")
    made: dict[str, str] = {}
    try:
        if given.brokers is not None:
            results = _read(given.brokers, "results")
            made["throughput.svg"] = throughput_plot(results)
            made["latency.svg"] = latency_plot(results)
        if given.growth is not None:
            made["growth.svg"] = growth_plot(_read(given.growth, "figures"))
        if given.soak is not None:
            made["soak.svg"] = soak_plot(_read(given.soak, "samples"))
    except ValueError as error:
        raise unusable(str(error)) from None
    given.into.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (given.into / name).write_text(text, encoding="utf-8")
        print(given.into / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
