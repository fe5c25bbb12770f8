"""Brokers shared by tests: each test finds them as they were launched."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stompkit.testing.launching.errors import BrokerError
from stompkit.testing.launching.running import CLOCK_MOVED, RunningBroker

__all__ = ["Sharing", "StompBrokerWarning"]

_State = dict[RunningBroker, tuple[str, ...]]


class StompBrokerWarning(pytest.PytestWarning):
    """A test has left a shared broker in a state that other tests cannot use."""


class Sharing:
    """pytest hooks that repair shared brokers.

    A test that leaves a shared broker stopped, killed, paused, cut off or with a full disk gets a
    :class:`StompBrokerWarning`. The broker is repaired before the next test that uses one. A test
    may move the clock without a warning; the clock is reset as well. Changes made by a fixture of a
    class, a module or the session remain until that fixture is torn down.
    """

    def __init__(self) -> None:
        """Start without brokers."""
        self._brokers: list[RunningBroker] = []
        #: The test that has left each broker with defects.
        self._culprits: dict[RunningBroker, str] = {}
        #: Active fixtures of a wider scope than a test's that have changed the state of a broker.
        self._held: set[object] = set()

    @contextmanager
    def share(self, broker: RunningBroker) -> Iterator[RunningBroker]:
        """Register a broker as shared within the context."""
        broker.share()
        self._brokers.append(broker)
        try:
            yield broker
        finally:
            self._brokers.remove(broker)
            self._culprits.pop(broker, None)
            broker.unshare()

    def repair(self, *, is_needed: bool = True) -> None:
        """Repair the shared brokers.

        If that is impossible and the next test needs them, raises ``pytest.fail.Exception``.
        Nothing is done while a fixture of a wider scope has changed a broker.
        """
        __tracebackhide__ = True
        if self._held:
            return
        for broker, defects in self._state().items():
            culprit = self._culprits.get(broker, "an earlier test")
            try:
                broker.repair()
                self._culprits.pop(broker, None)
            except (BrokerError, OSError) as error:
                if not is_needed:
                    continue
                self._culprits.pop(broker, None)
                raise pytest.fail.Exception(
                    f"{culprit} left {broker.name} at {broker.url} {' and '.join(defects)}, and it"
                    f" could not be put right: {error}",
                    pytrace=False,
                ) from None

    def _state(self) -> _State:
        """Return the shared brokers that have defects."""
        return {broker: broker.defects for broker in self._brokers if broker.defects}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """Record a fixture of a wider scope that changes the state of a broker."""
        if fixturedef.scope == "function":
            return (yield)
        before = self._state()
        try:
            return (yield)
        finally:
            if self._state() != before:
                self._held.add(fixturedef)

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """Forget the changes of such a fixture."""
        self._held.discard(fixturedef)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Warn about defects that a test has left, after the teardown of its fixtures."""
        try:
            return (yield)
        finally:
            if not self._held:
                self._accuse(item)

    def _accuse(self, item: pytest.Item) -> None:
        for broker, defects in self._state().items():
            if broker not in self._culprits:
                self._culprits[broker] = item.nodeid
                if defects == (CLOCK_MOVED,):
                    continue
                item.warn(
                    StompBrokerWarning(
                        f"{item.nodeid} left {broker.name} at {broker.url} {' and '.join(defects)};"
                        " other tests share this broker, so it is put right before the next one."
                        " Undo it in the test, or use stomp_broker_factory() for another broker."
                    )
                )
