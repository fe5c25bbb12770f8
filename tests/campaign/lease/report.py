"""A table of the results of runs with a lease, for ``docs/explanation/lease.rst``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.campaign.checker import RULES
from tests.campaign.lease.checks import ACTIVE, FAULTS_NOTE
from tests.campaign.results import Results
from tests.campaign.running import Verdict

__all__ = ["lease_table", "write_lease_report"]

#: Markers of the generated part of the page.
_BEGIN: Final = ".. what follows is made by python -m tests.campaign lease-report\n"
_END: Final = ".. end of what is made\n"
_COUNTS: Final = {
    "terms": "terms of brokers",
    "receipted": "messages with a receipt",
    "delivered": "deliveries",
    "redelivered": "redeliveries",
    "settled": "confirmed acknowledgements",
    "drained": "messages left in queues at the end",
}


def lease_table(verdicts: Iterable[Verdict]) -> str:
    """Return a table in reStructuredText: totals, faults, and violations."""
    verdicts = list(verdicts)
    counts = {
        "runs": len(verdicts),
        "runs that did not come to their end": sum(bool(each.problem) for each in verdicts),
    }
    for name, title in _COUNTS.items():
        counts[title] = sum(each.counts.get(name, 0) for each in verdicts)
    names = {name for each in verdicts for name in each.counts if name.startswith(FAULTS_NOTE)}
    for name in sorted(names):
        title = f"runs with the fault ``{name.removeprefix(FAULTS_NOTE)}``"
        counts[title] = sum(each.counts.get(name, 0) > 0 for each in verdicts)
    for rule in (*RULES, ACTIVE):
        counts[f"violations ``{rule}``"] = sum(each.violations.get(rule, 0) for each in verdicts)
    lines = [".. list-table::", ""]
    for title, count in counts.items():
        lines += [f"   * - {title}", f"     - {count:,}"]
    return "\n".join([*lines, ""])


def write_lease_report(results: Results, folder: Path) -> int:
    """Write the table into the documentation; return the exit status."""
    verdicts = list(results)
    if not verdicts:
        print(f"{results.path} has no runs: python -m tests.campaign lease", file=sys.stderr)
        return 2
    page = folder / "lease.rst"
    before, begin, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert begin and end, f"{page} has lost the lines between which the table goes"
    text = f"{before}{_BEGIN}\n{lease_table(verdicts)}\n{_END}{after}"
    page.write_text(text, encoding="utf-8")
    print(page)
    return 0
