"""Additions of the pytest plug-in to reports: logs, frames and missing servers."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from stompkit.testing.launching.errors import BrokerMissingError
from stompkit.testing.launching.running import RunningBroker

__all__ = ["Reporting"]

_SHOWN_LOG_LINES = 40
_SHOWN_FRAMES = 30
#: Attribute of a report that holds the name of a missing server and the remedy. Plain strings, so
#: that pytest-xdist can transfer them between processes.
_MISSING = "stompkit_missing"


class Reporting:
    """Hooks of pytest."""

    def __init__(self, running: list[RunningBroker]) -> None:
        """Report on the brokers that are ``running`` at the time of a failure."""
        self._running = running
        self._before: list[RunningBroker] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Record which brokers run before the test."""
        self._before = list(self._running)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Record a missing server in the report; add the brokers' logs and frames to a failure."""
        report = yield
        missing = call.excinfo.value.__context__ if call.excinfo is not None else None
        if isinstance(missing, BrokerMissingError):
            report.__dict__[_MISSING] = [missing.name, missing.reason]
        elif report.failed:
            for broker in self._brokers_of(item):
                report.sections += _sections(broker)
        return report

    def _brokers_of(self, item: pytest.Item) -> list[RunningBroker]:
        """Return the brokers that a test has used, as far as is known, without duplicates."""
        mine: list[object] = []
        for value in getattr(item, "funcargs", {}).values():
            # Factories and pairs have brokers; those of a factory may belong to another test.
            mine += [value, *filter(self._is_used, getattr(value, "brokers", ()))]
        return [broker for broker in self._running if broker in mine]

    def _is_used(self, broker: RunningBroker) -> bool:
        """Return True if this test has started a broker, or communicated with it."""
        return broker not in self._before or not broker.records_frames or bool(broker.frames.all)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List each missing server, with the number of tests affected by it."""
        counts: dict[tuple[str, str], dict[str, int]] = {}
        for outcome in ("skipped", "failed", "error"):
            for report in terminalreporter.stats.get(outcome, []):
                missing = getattr(report, _MISSING, None)
                if missing is not None:
                    word = "skipped" if outcome == "skipped" else "failed"
                    tests = counts.setdefault((missing[0], missing[1]), {})
                    tests[word] = tests.get(word, 0) + 1
        if not counts:
            return
        terminalreporter.section("STOMP brokers that are not installed")
        for (name, reason), tests in sorted(counts.items()):
            total = ", ".join(
                f"{number} test{'s' if number != 1 else ''} {word}"
                for word, number in tests.items()
            )
            terminalreporter.line(f"{name}: {total}")
            terminalreporter.line(f"  {reason}")


def _sections(broker: RunningBroker) -> list[tuple[str, str]]:
    """Return the end of a broker's log and its last frames, if there are any."""
    where = f"{broker.name} at {broker.url}"
    found = [(f"log of {where}", "\n".join(broker.log.splitlines()[-_SHOWN_LOG_LINES:]))]
    if broker.records_frames:
        found.append((f"last frames of {where}", broker.frames.text(_SHOWN_FRAMES)))
    return [(title, text) for title, text in found if text]
