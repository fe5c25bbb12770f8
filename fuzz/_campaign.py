"""Runs targets under libFuzzer in separate processes, and reports the results."""

from __future__ import annotations

import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from fuzz._targets import CORPUS

__all__ = ["Finding", "Outcome", "Summary", "campaign", "minimise", "summary_path"]

#: Limits on the memory of one process and on one allocation, in MiB.
_RSS_MB: Final = 1_024
_MALLOC_MB: Final = 512
_STATISTIC: Final = re.compile(r"^stat::(\w+): +(\d+)$", re.MULTILINE)
_PROGRESS: Final = re.compile(r"^#\d+\t\w+ +cov: (\d+) ft: (\d+) corp: (\d+)/", re.MULTILINE)
_EXECUTED: Final = re.compile(r"^#(\d+)\t", re.MULTILINE)
_EXCEPTION: Final = re.compile(r"=== Uncaught Python exception: ===\n(.+)")
_DEADLY: Final = re.compile(r"^==\d+== ?ERROR: libFuzzer: (.+)$", re.MULTILINE)


class Finding(msgspec.Struct, frozen=True):
    """An input that makes a target fail."""

    file: str
    error: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one target."""

    executions: int
    cpu_seconds: float
    #: Number of branches that some input has taken, in the packages of the target.
    branches: int
    #: Number of branches, distinguished by how often they were taken.
    features: int
    inputs: int
    peak_rss_mb: int
    findings: list[Finding] = []


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one run."""

    #: Unique id, so that no run is recorded twice.
    id: str
    python: str
    atheris: str
    targets: dict[str, Outcome]

    @property
    def has_findings(self) -> bool:
        """True if a target has findings."""
        return any(each.findings for each in self.targets.values())


def campaign(
    names: Sequence[str],
    work: Path,
    *,
    seconds: float,
    jobs: int,
    told: Callable[[str, Outcome], None],
) -> Summary:
    """Run each target for *seconds* of processor time, ``jobs`` at a time.

    ``told`` is called with the outcome of each. Inputs, logs and findings are in ``work``, and so
    is the summary. It is updated as soon as a target has ended.
    """
    summary = Summary(
        id=f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}",
        python=platform.python_version(),
        atheris=version("atheris"),
        targets={},
    )
    path = summary_path(work, summary)
    path.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        runs = {pool.submit(_run, name, work, seconds): name for name in names}
        for each in as_completed(runs):
            name, outcome = runs[each], each.result()
            summary.targets[name] = outcome
            path.write_bytes(msgspec.json.format(msgspec.json.encode(summary)) + b"\n")
            told(name, outcome)
    return summary


def summary_path(work: Path, summary: Summary) -> Path:
    """Return the path of the summary of a run."""
    return work / "summaries" / f"{summary.id}.json"


def _run(name: str, work: Path, seconds: float) -> Outcome:
    corpus, found = work / "corpus" / name, work / "findings" / name
    log = work / "logs" / f"{name}.log"
    for folder in (corpus, found, log.parent):
        folder.mkdir(parents=True, exist_ok=True)
    before = set(found.iterdir())
    options = [
        f"-rss_limit_mb={_RSS_MB}",
        f"-malloc_limit_mb={_MALLOC_MB}",
        f"-artifact_prefix={found}/",
        "-reload=0",
        # In wall-clock time, which does not count here.
        "-report_slow_units=3600",
    ]
    kept = [str(CORPUS / name)] if (CORPUS / name).is_dir() else []
    status, cpu_s = _measured(
        [name, *options, str(corpus), *kept], log, {"FUZZ_CPU_SECONDS": str(seconds)}
    )
    text = log.read_text(encoding="utf-8", errors="replace")
    findings = [Finding(str(path), _reason(text)) for path in sorted(set(found.iterdir()) - before)]
    if status and not findings:
        findings = [Finding("", _reason(text) or f"ended with status {status}; see {log}")]
    statistics = {key: int(value) for key, value in _STATISTIC.findall(text)}
    progress = _PROGRESS.findall(text)
    branches, features, inputs = map(int, progress[-1]) if progress else (0, 0, 0)
    counted = [int(each) for each in _EXECUTED.findall(text)]
    return Outcome(
        executions=statistics.get("number_of_executed_units", max(counted, default=0)),
        cpu_seconds=round(cpu_s, 1),
        branches=branches,
        features=features,
        inputs=inputs,
        peak_rss_mb=statistics.get("peak_rss_mb", 0),
        findings=findings,
    )


def _measured(arguments: list[str], log: Path, more: dict[str, str]) -> tuple[int, float]:
    """Run the driver; return its exit status and its processor time in seconds."""
    # Compiled modules have no branches that could be counted.
    environment = {**os.environ, **more, "STOMPKIT_PURE": "1", "PYTHONHASHSEED": "0"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "fuzz._driver", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime


def _reason(log: str) -> str:
    """Return the reason of a failure, in one line."""
    found = _EXCEPTION.search(log) or _DEADLY.search(log)
    return found[1].strip()[:500] if found else ""


def minimise(name: str, work: Path) -> int:
    """Reduce the inputs of a target to the fewest with the same branches; return their number."""
    corpus, kept = work / "corpus" / name, CORPUS / name
    fresh = work / "minimised" / name
    shutil.rmtree(fresh, ignore_errors=True)
    log = work / "logs" / f"{name}-minimised.log"
    for folder in (fresh, log.parent):
        folder.mkdir(parents=True, exist_ok=True)
    sources = [str(each) for each in (kept, corpus) if each.is_dir()]
    options = ["-set_cover_merge=1", "-use_counters=0"]
    status, _ = _measured([name, *options, str(fresh), *sources], log, {})
    if status:
        raise RuntimeError(f"{name}: minimising has failed with status {status}: see {log}")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(fresh, kept)
    return len(list(kept.iterdir()))
