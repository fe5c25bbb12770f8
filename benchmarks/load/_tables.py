"""Output of the results: a table, and JSON."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks._report import heading
from benchmarks.load._rounds import Result
from stompkit import __version__, is_compiled

__all__ = ["PERCENTILES", "lines", "write_json"]

PERCENTILES: Final = ("p50", "p99", "p99.9")

#: A column: its title, and a function of a result and the first result of its cell.
_Column = tuple[str, Callable[[Result, Result | None], str]]
_MIB: Final = 1 << 20
#: Most cores used by other programs that are not reported.
_MOST_OTHERS: Final = 0.2


def lines(results: list[Result]) -> Iterator[str]:
    """Yield the lines of a table for each cell."""
    yield heading()
    for cell, group in groupby(results, lambda result: result.cell):
        rows = list(group)
        first = rows[0] if rows[0].runs else None
        columns = _COLUMNS.get(cell.kind, _USUAL)
        yield ""
        yield f"{cell.name}: {cell.about}"
        yield _row("broker", [head for head, _ in columns], columns)
        for result in rows:
            name = result.peer.name
            if result.runs:
                yield _row(name, [say(result, first) for _, say in columns], columns)
                if result.others_cores > _MOST_OTHERS:
                    yield f"{'':16}meanwhile others kept {result.others_cores:.1f} cores busy"
            appends = [run["append_us"] for run in result.runs if "append_us" in run]
            if appends:
                yield f"{'':16}a synced append to its disk takes {median(appends):,.0f} us"
            if result.fault:
                yield f"  {name} FAILED: {result.fault}"
            if result.lacks:
                yield f"  {name:<14}  not measured: {result.lacks}"


def _row(name: str, texts: list[str], columns: tuple[_Column, ...]) -> str:
    widths = [max(11, len(head) + 2) for head, _ in columns]
    cells = (f"{text:>{width}}" for text, width in zip(texts, widths, strict=True))
    return f"  {name:<14}{''.join(cells)}".rstrip()


def _a_second(result: Result, first: Result | None) -> str:
    return f"{result.per_second:,.0f}"


def _least(result: Result, first: Result | None) -> str:
    return f"{min(run['per_second'] for run in result.runs):,.0f}"


def _most(result: Result, first: Result | None) -> str:
    return f"{max(run['per_second'] for run in result.runs):,.0f}"


def _ratio(result: Result, first: Result | None) -> str:
    return "" if first is None else f"{result.per_second / first.per_second:.2f}"


def _cpu(result: Result, first: Result | None) -> str:
    return f"{result.cpu_per_100k_s:.3f}"


def _generator(result: Result, first: Result | None) -> str:
    parts = [run["generator_cpu_s"] / run["seconds"] for run in result.runs]
    return f"{sum(parts) / len(parts):.0%}"


def _percentiles(result: Result, first: Result | None) -> str:
    key = "receipt_us" if result.cell.window else "latency_us"
    found = [result.percentile(key, name) for name in PERCENTILES]
    return "/".join(f"{value:,.0f}" for value in found if value is not None)


def _figure(key: str, divisor: float, form: str) -> Callable[[Result, Result | None], str]:
    """Return a column of a figure of the reports, each divided."""

    def say(result: Result, first: Result | None) -> str:
        return f"{median(run[key] for run in result.runs) / divisor:{form}}"

    return say


def _each(key: str, divisor: float, form: str) -> Callable[[Result, Result | None], str]:
    """Return a column of the use of a resource by a message or a connection."""

    def say(result: Result, first: Result | None) -> str:
        before = "memory_before_bytes"
        each = [
            # The memory of a broker may have shrunk.
            max(0, run[key] - (run[before] if key == "memory_bytes" else 0)) / run["messages"]
            for run in result.runs
        ]
        return f"{median(each) / divisor:{form}}"

    return say


_USUAL: Final[tuple[_Column, ...]] = (
    ("a second", _a_second),
    ("least", _least),
    ("most", _most),
    ("ratio", _ratio),
    ("CPU s/100k", _cpu),
    ("generator", _generator),
    (f"{'us 50/99/99.9 %':>20}", _percentiles),
)
_COLUMNS: Final[dict[str, tuple[_Column, ...]]] = {
    "backlog": (
        ("messages", _figure("messages", 1, ",.0f")),
        ("in a second", _a_second),
        ("ratio", _ratio),
        ("CPU s/100k", _cpu),
        ("empty, MiB", _figure("memory_before_bytes", _MIB, ",.1f")),
        ("full, MiB", _figure("memory_bytes", _MIB, ",.1f")),
        ("octets each", _each("memory_bytes", 1, ",.0f")),
        ("disk, each", _each("disk_bytes", 1, ",.0f")),
        ("restart, s", _figure("restart_s", 1, ",.2f")),
        ("out a second", _figure("drain_per_second", 1, ",.0f")),
    ),
    "idle": (
        ("connections", _figure("messages", 1, ",.0f")),
        ("a second", _a_second),
        ("ratio", _ratio),
        ("CPU s/100k", _cpu),
        ("none, MiB", _figure("memory_before_bytes", _MIB, ",.1f")),
        ("all, MiB", _figure("memory_bytes", _MIB, ",.1f")),
        ("KiB each", _each("memory_bytes", 1_024, ",.1f")),
    ),
}


def write_json(path: Path, results: list[Result]) -> None:
    """Write every run and its settings."""
    made: dict[str, Any] = {
        "arguments": sys.argv[1:],
        "stompkit": __version__,
        "compiled": is_compiled(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "results": [
            {
                "cell": result.cell.name,
                "kind": result.cell.kind,
                "about": result.cell.about,
                "rate": result.cell.rate,
                "is_varied": result.cell.is_varied,
                "is_headline": result.cell.is_headline,
                "broker": result.peer.name,
                "fault": result.fault,
                "lacks": result.lacks,
                "runs": result.runs,
            }
            for result in results
        ],
    }
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
