"""Writes what the conformance suite finds out about brokers, ``conformance-results.rst``.

``--run`` launches all brokers, or those that are named, runs the suite on each and puts what was
found into ``conformance/results``. The page, and a table of all cases beside the files there, are
made of these and of the known deviations in ``conformance/brokers``. So is the table in the page of
comparisons. ``--check`` changes nothing, and exits with 1 where a page differs from them.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from stompkit.conformance.report import Report
from stompkit.conformance.report.expectations import Deviation, Expectations, compare, load
from stompkit.conformance.report.html_matrix import to_matrix
from stompkit.conformance.report.merge import read
from stompkit.conformance.report.summary import unsupported_reasons
from stompkit.conformance.run.values import expectations_of
from stompkit.conformance.verdict import CaseResult, Verdict, WireEvent
from stompkit.testing.launching.brokers.morbidq import PYTHON_VARIABLE, morbidq_python

__all__ = ["main"]

_ROOT: Final = Path(__file__).parents[1]
_NAME: Final = "conformance-results.rst"
_MATRIX: Final = "matrix.html"
_COMPARISON: Final = "comparison.rst"
_RESULTS: Final = _ROOT / "conformance" / "results"
_KNOWN: Final = _ROOT / "conformance" / "brokers"
_WIDTH: Final = 100
#: A user, required by the cases about other logins.
_LOGIN: Final = ["--login", "suite", "--passcode", "let me in"]
_NEITHER: Final = ["--no-ack", "--no-receipts"]
#: MorbidQ as emulated by stompkit.
_STAND_IN: Final = "morbidq-stand-in"
#: The brokers, in the order of the tables, and the options of the suite for them. A version is that
#: of ``--broker``; the files of ``rabbitmq:4`` are called ``rabbitmq-4``.
_BROKERS: Final[dict[str, list[str]]] = {
    "stompkit": _LOGIN,
    "activemq:5": _LOGIN,
    "activemq:6": _LOGIN,
    "artemis": _LOGIN,
    # It already has a user.
    "rabbitmq:3": [],
    "rabbitmq:4": [],
    "coilmq": [],
    "morbidq": _NEITHER,
    _STAND_IN: _NEITHER,
}
#: Timeouts of an answer, and of its absence, in seconds, on a busy machine.
_TIMES: Final = ["--timeout", "8", "--quiet-time", "1"]
_NOT_OK: Final = (Verdict.FAILED, Verdict.NON_STRICT)
#: Verdicts in the page of comparisons.
_COMPARED: Final = (Verdict.OK, Verdict.NON_STRICT, Verdict.FAILED, Verdict.UNSUPPORTED)
#: Number of the events of a wire log that are kept.
_MOST_EVENTS: Final = 40
_MOST_CHARACTERS: Final = 400
_SPECIAL: Final = re.compile(r"([\\`*|_])")
_INTRODUCTION: Final = """\
.. Made by docs/make_results.py from conformance/results and conformance/brokers: run that instead.

Conformance results
===================

``make results`` launches the brokers that are installed or fetched, as tests that use
``stomp_broker`` get them, and runs the suite on each. A `table of all cases`_, ``matrix.html``,
has the reason for every verdict, and the wire log of what is not OK. The site has it (``make
docs``), and ``python docs/make_results.py`` writes it beside the reports in
``conformance/results``, which ``python -m stompkit.conformance merge`` reads, too.
``docs/howto/conformance.rst`` explains verdicts and chapters.

.. _table of all cases: ../../conformance/results
"""


class _Target(NamedTuple):
    """A broker, the results of its run, and its known deviations."""

    broker: str
    report: Report
    known: Expectations | None

    @property
    def name(self) -> str:
        """Product name from the broker, or else the name by which it is launched."""
        return " ".join(self.report.target.product()).strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested parts, write the files, or check the page; return the exit status."""
    options = _parser().parse_args(arguments)
    brokers = [] if options.run is None else options.run or list(_BROKERS)
    old = [each for each in brokers if not _run(each, options.only, options.results, options.known)]
    targets = list(_targets(options.results, options.known))
    pages = {options.into / _NAME: page(targets)}
    comparison = options.comparison / _COMPARISON
    if comparison.exists():
        pages[comparison] = compared(comparison.read_text(encoding="utf-8"), targets)
    if not options.check:
        (options.results / _MATRIX).write_bytes(_table(targets))
    for path, text in pages.items():
        if not options.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path} is not what make_results.py makes of the results", file=sys.stderr)
            return 1
    for broker in old:
        print(f"{broker} could not be tested: what there is of it is older", file=sys.stderr)
    return 1 if old else 0


def matrix() -> bytes:
    """Return the table of all cases on all brokers, as an HTML page, from the reports."""
    return _table(_targets(_RESULTS, _KNOWN))


def _table(targets: Iterable[_Target]) -> bytes:
    return to_matrix([target.report for target in targets])


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument(
        "--run",
        nargs="*",
        choices=_BROKERS,
        metavar="BROKER",
        help=f"run the suite on these, or on all: {', '.join(_BROKERS)}",
    )
    made.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="CASE",
        help="run only these cases, and keep the others as they were",
    )
    made.add_argument("--check", action="store_true", help="write nothing, compare")
    for name, folder, what in (
        ("into", _ROOT / "docs" / "reference", "the page is"),
        ("comparison", _ROOT / "docs" / "explanation", "the page of comparisons is, if any,"),
        ("results", _RESULTS, "the reports and the table are"),
        ("known", _KNOWN, "the lists of known deviations are"),
    ):
        made.add_argument(
            f"--{name}", type=Path, default=folder, metavar="DIR", help=f"where {what}"
        )
    return made


# Running the suite.


def _run(broker: str, only: Sequence[str], results: Path, known: Path) -> bool:
    """Run the suite on a broker and store the published part; return True if that was possible."""
    if broker == "morbidq" and morbidq_python() is None:
        return False
    name = _launched(broker)
    expected = _known(broker, known)
    environment = {PYTHON_VARIABLE: ""} if broker == _STAND_IN else {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        status = subprocess.run(
            [
                *(sys.executable, "-m", "stompkit.conformance", *only, f"--broker={name}"),
                *(*_BROKERS[broker], *_TIMES, f"--json={path}"),
                *([] if expected is None else [f"--expect={expected}"]),
            ],
            cwd=_ROOT,
            env={**os.environ, **environment},
            check=False,
        ).returncode
        # Failed cases belong on the page, as does a broker that has not survived.
        if status not in (0, 1, 3) or not path.exists():
            return False
        [report] = read(path)
    results.mkdir(parents=True, exist_ok=True)
    name = _file_name(broker)
    path = results / f"{name}.json"
    report = published(report, name)
    if only and path.exists():
        [before] = read(path)
        if before.target.server != report.target.server:
            print(f"{name} is another version now: run all cases", file=sys.stderr)
            return False
        report = _renewed(before, report)
    path.write_bytes(_lines(report))
    return True


def _renewed(before: Report, report: Report) -> Report:
    """A report in which the cases that were run again have their new results."""
    again = {result.id: result for result in report.results}
    before.results = [again.pop(result.id, result) for result in before.results]
    before.results += again.values()
    before.selected = len(before.results)
    return before


def _launched(broker: str) -> str:
    """Return the suite's name of a broker."""
    return broker.removesuffix("-stand-in")


def _file_name(broker: str) -> str:
    """Return the name of a broker's files, without suffix."""
    return broker.replace(":", "-")


def _known(broker: str, known: Path) -> Path | None:
    """Return the list of known deviations, that of the version if there is one."""
    lists = {path.stem: path for path in known.glob("*.toml")}
    return expectations_of(_launched(broker), lists)


def published(report: Report, label: str) -> Report:
    """Return a report without the name of this machine, its ports and the time of day.

    ``label`` stands for the address. Wire logs are shortened, and kept for cases that are not OK
    only.
    """
    hide = _without_host_names()
    report.target.address = label
    report.target.server = hide(report.target.server)
    report.started = f"{report.started[:10]}T00:00:00+00:00"
    for result in report.results:
        result.detail = hide(result.detail)
        result.notes = [hide(note) for note in result.notes]
        result.violations = {rule: hide(seen) for rule, seen in result.violations.items()}
        result.profile = {about: hide(does) for about, does in result.profile.items()}
        result.wire = _shortened(result.wire, hide) if result.verdict in _NOT_OK else []
    return report


def _lines(report: Report) -> bytes:
    """Return a report as JSON with a line for each case, so that diffs are readable."""
    cases = b",\n".join(map(msgspec.json.encode, report.results))
    around = msgspec.json.encode(msgspec.structs.replace(report, results=[]))
    return around.replace(b'"results":[]', b'"results":[\n%b\n]' % cases, 1) + b"\n"


def _without_host_names() -> Callable[[str], str]:
    """Return a function that replaces the names of this machine in a text."""
    names = {socket.gethostname(), socket.gethostname().partition(".")[0], socket.getfqdn()}
    words = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    # Not as a part of another word; but after an escape sequence, as in ID\\cNAME.
    name = re.compile(rf"(?:(?<=\\[cnr])|(?<![A-Za-z0-9]))(?:{words})(?![A-Za-z0-9])")
    return lambda text: name.sub("localhost", text)


def _shortened(wire: list[WireEvent], hide: Callable[[str], str]) -> list[WireEvent]:
    """Return the beginning and the end of a wire log."""
    half = _MOST_EVENTS // 2
    if len(wire) > _MOST_EVENTS:
        gap = WireEvent(0, wire[half].at_ms, ".", f"({len(wire) - 2 * half} events left out)")
        wire = [*wire[:half], gap, *wire[-half:]]
    return [msgspec.structs.replace(event, text=_cut(hide(event.text))) for event in wire]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


# Making the page.


def _targets(results: Path, known: Path) -> Iterator[_Target]:
    """Return the brokers with results, judged by the current known deviations."""
    for broker in _BROKERS:
        path, listed = results / f"{_file_name(broker)}.json", _known(broker, known)
        if path.exists():
            [report] = read(path)
            for result in report.results:
                result.expected = ""
            expectations = None if listed is None else load(listed)
            if expectations is not None:
                report.better_than_expected = compare(report.results, expectations)
            yield _Target(broker, report, expectations)


def page(targets: Sequence[_Target]) -> str:
    """Return the page of the manual."""
    lines = [_INTRODUCTION, *_totals(targets)]
    for target in targets:
        lines += _section(target)
    lines += _profiles(targets)
    return "\n".join(lines).rstrip("\n") + "\n"


def compared(text: str, targets: Iterable[_Target]) -> str:
    """Return the page of comparisons with the current number of cases by verdict."""
    rows = []
    for target in targets:
        counts = target.report.count()
        if target.broker != _STAND_IN:
            numbers = ", ".join(str(counts[verdict]) for verdict in _COMPARED)
            rows.append(f'   "{_escaped(target.name)}", {numbers}\n')
    header = f".. csv-table::\n   :header: Target, {', '.join(_COMPARED)}\n\n"
    before, found, after = text.partition(header)
    _, _, rest = after.partition("\n\n")
    return f"{before}{found}{''.join(rows)}\n{rest}" if found else text


def _totals(targets: Sequence[_Target]) -> Iterator[str]:
    yield ".. csv-table::"
    yield f"   :header: Target, Tested on, {', '.join(Verdict)}, Without a reason\n"
    for target in targets:
        counts = target.report.count()
        unknown = sum(
            result.verdict in _NOT_OK and not result.expected for result in target.report.results
        )
        numbers = [*(counts[verdict] for verdict in Verdict), unknown]
        cells = [f'"{_escaped(target.name)}"', target.report.started[:10], *map(str, numbers)]
        yield f"   {', '.join(cells)}"
    yield ""


def _profiles(targets: Sequence[_Target]) -> Iterator[str]:
    """Yield a table of the choices of each broker, side by side."""
    profiles = [target.report.profile() for target in targets]
    names = sorted({name for profile in profiles for name in profile}, key=str.casefold)
    yield _title("Profile")
    yield "What the brokers do where the specifications leave them the choice: no verdict.\n"
    if names:
        yield ".. list-table::\n   :header-rows: 1\n"
        yield _row("About", *(_escaped(target.name) for target in targets))
        for name in names:
            yield _row(*map(_escaped, [name, *(each.get(name, "-") for each in profiles)]))
        yield ""


def _section(target: _Target) -> Iterator[str]:
    """Return the section of one broker: its verdicts by chapter, and every deviation."""
    report = target.report
    yield _title(_escaped(target.name))
    facts = f"STOMP {', '.join(report.target.versions)}; suite {report.suite_version}."
    if target.known is not None:
        facts += f" What is known is of {target.known.broker} {target.known.versions}"
        facts += f": {target.known.link}." if target.known.link else "."
    if target.broker == _STAND_IN:
        facts += " This is stompkit with MorbidQ's quirks."
    if not report.complete:
        facts += f" The run was cut short: {report.cut_short}."
    yield _filled(_escaped(facts)) + "\n"
    yield ".. csv-table::"
    yield f"   :header: Chapter, {', '.join(Verdict)}\n"
    for chapter, counts in report.by_chapter().items():
        yield f"   {chapter}, {', '.join(str(counts[verdict]) for verdict in Verdict)}"
    yield ""
    yield from _deviations(target)
    for reason, number in unsupported_reasons(report).items():
        noun = "case" if number == 1 else "cases"
        yield _filled(_escaped(f"{Verdict.UNSUPPORTED}, {number} {noun}: {reason}"), "* ") + "\n"
    if report.better_than_expected:
        better = ", ".join(f"``{name}``" for name in report.better_than_expected)
        yield _filled(f"Listed as deviations, and came out better: {better}.") + "\n"


def _deviations(target: _Target) -> Iterator[str]:
    """Return every case that is not OK, grouped by the reason."""
    groups: dict[tuple[Verdict, str], list[CaseResult]] = {}
    for verdict in _NOT_OK:
        for result in target.report.results:
            if result.verdict is verdict:
                groups.setdefault((verdict, _reason(target.known, result)), []).append(result)
    if not groups:
        return
    yield ".. list-table::\n   :header-rows: 1\n"
    yield _row("Verdict", "Cases", "Reason")
    for (verdict, reason), results in groups.items():
        yield _row(verdict, ", ".join(f"``{result.id}``" for result in results), reason)
    yield ""


def _reason(known: Expectations | None, result: CaseResult) -> str:
    """Return the reason in the list, or else the observation."""
    listed: Deviation | None = known.of(result.id) if known and result.expected else None
    if listed is None:
        return f"*no reason is known*: {_escaped(result.detail)}"
    link = f" (`more <{listed.link}>`__)" if listed.link else ""
    return f"{_escaped(listed.reason)}{link}"


def _title(text: str) -> str:
    return f"{text}\n{'-' * len(text)}\n"


def _row(*cells: str) -> str:
    first, *others = cells
    return "\n".join(
        [_filled(first, "   * - "), *(_filled(cell, "     - ") for cell in others)],
    )


def _escaped(text: str) -> str:
    """Return a text with all markup of docutils escaped."""
    return _SPECIAL.sub(r"\\\1", text)


def _filled(text: str, begin: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()),
        _WIDTH,
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    sys.exit(main())
