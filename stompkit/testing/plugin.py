"""pytest plug-in: a STOMP broker for tests, launched for them or already running.

Loaded by pytest wherever this package is installed, so it imports neither Twisted, whose reactor
another plug-in may want to choose, nor anything else that takes time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from stompkit.testing import (
    BrokerError,
    BrokerMissing,
    LaunchConfig,
    RunningBroker,
    given,
    launch,
)
from stompkit.testing._options import OPTIONS, Settings
from stompkit.testing._polling import wait_until
from stompkit.testing._ports import is_listening

__all__ = ["BrokerFactory", "stomp_broker", "stomp_broker_factory"]

_SETTINGS = pytest.StashKey[Settings]()
#: How long a given broker may take to listen, in seconds: it may have been started just before.
_GIVEN_S = 2.0
_SHOWN_LOG_LINES = 40
#: Where a report keeps the name and the remedy of a server that was missing. Plain strings, so
#: that they travel from the processes of pytest-xdist.
_MISSING = "stompkit_missing"


class BrokerFactory:
    """Makes brokers: ``factory(name=None, **fields)``, the fields those of LaunchConfig."""

    def __init__(self, settings: Settings) -> None:
        """Make brokers by the settings of this run of pytest."""
        self._settings = settings
        self._stack = ExitStack()
        self.brokers: list[RunningBroker] = []

    def __call__(self, name: str | None = None, **fields: Any) -> RunningBroker:
        """Return a broker, and stop it at the end of the run if not before.

        Without a name it is what the options ask for: the given broker, which can't be told any
        fields but login, passcode and vhost, or one launched with the options' login and so on.
        With a name it is launched, whatever the options say.
        """
        __tracebackhide__ = True
        settings = self._settings
        if name is None:
            fields = settings.credentials() | fields
            if settings.address is not None:
                return self._given(fields)
        try:
            broker = launch(LaunchConfig(name=name or settings.broker, **fields))
        except BrokerMissing as error:
            outcome = pytest.fail if settings.missing == "fail" else pytest.skip
            # The cause would be shown beside the same message; the context stays for the report.
            raise outcome.Exception(str(error), pytrace=False) from None
        self._stack.callback(broker.stop)
        self.brokers.append(broker)
        return broker

    def _given(self, fields: dict[str, Any]) -> RunningBroker:
        """Return the broker that somebody else runs."""
        __tracebackhide__ = True
        assert self._settings.address is not None
        host, port = self._settings.address
        others = sorted(fields.keys() - {"login", "passcode", "vhost"})
        if others:
            pytest.skip(
                f"needs a broker with {', '.join(others)} of its own choice, and --mq gave "
                f"{host}:{port}"
            )
        if not wait_until(lambda: is_listening(host, port), _GIVEN_S, interval_s=0.1):
            raise BrokerError(
                f"nothing listens at {host}:{port}, where --mq (or mq, or STOMPKIT_MQ) says that "
                "a broker runs: start it, or leave the option out to have one started"
            )
        return given(host, port, name=self._settings.broker_name or "given", **fields)

    def close(self) -> None:
        """Stop the brokers, the newest first."""
        self._stack.close()


@pytest.fixture(scope="session")
def stomp_broker_factory(pytestconfig: pytest.Config) -> Iterator[BrokerFactory]:
    """Launch more STOMP brokers: ``factory(name=None, **fields)`` returns a RunningBroker.

    The name is stompkit, coilmq, activemq or rabbitmq, by default what --mq-broker says; the
    fields are those of stompkit.testing.LaunchConfig. All are stopped at the end of the run.
    """
    factory = BrokerFactory(pytestconfig.stash[_SETTINGS])
    try:
        yield factory
    finally:
        factory.close()


@pytest.fixture(scope="session")
def stomp_broker(stomp_broker_factory: BrokerFactory) -> RunningBroker:
    """A STOMP broker, shared by all tests: attributes host, port, url, login, passcode, vhost, log.

    It is launched on a free port of 127.0.0.1 when it is first asked for, and stopped at the end;
    --mq-broker says which one, and --mq HOST:PORT names one that is already running instead.
    """
    try:
        return stomp_broker_factory()
    except BrokerError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, each also as a setting of the configuration file."""
    group = parser.getgroup("stompkit", "STOMP brokers for tests (stompkit)")
    for option in OPTIONS:
        # No defaults here: an option that was not given must not hide the others' values.
        group.addoption(option.flag, metavar=option.metavar, default=None, help=option.help)
        parser.addini(option.name, f"{option.help} (see {option.flag})", default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Read the options, so that a mistake in them is told before any test runs."""
    config.stash[_SETTINGS] = Settings.read(config)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which broker is used, if anybody asked for one."""
    return config.stash[_SETTINGS].header()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note a missing server in the report, and add the broker's log to that of a failure."""
    report = yield
    missing = call.excinfo.value.__context__ if call.excinfo is not None else None
    if isinstance(missing, BrokerMissing):
        report.__dict__[_MISSING] = [missing.name, missing.reason]
    elif report.failed:
        for broker in _brokers_of(item):
            last_lines = "\n".join(broker.log.splitlines()[-_SHOWN_LOG_LINES:])
            if last_lines:
                report.sections.append((f"log of {broker.name} at {broker.url}", last_lines))
    return report


def _brokers_of(item: pytest.Item) -> list[RunningBroker]:
    """The brokers that a test got from fixtures, each once."""
    found: list[RunningBroker] = []
    for value in getattr(item, "funcargs", {}).values():
        brokers = value.brokers if isinstance(value, BrokerFactory) else [value]
        found += [
            broker
            for broker in brokers
            if isinstance(broker, RunningBroker) and broker not in found
        ]
    return found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List each server that was missing, with the number of tests that it cost."""
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
            f"{number} test{'s' if number != 1 else ''} {word}" for word, number in tests.items()
        )
        terminalreporter.line(f"{name}: {total}")
        terminalreporter.line(f"  {reason}")
