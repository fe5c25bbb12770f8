"""Brokers shared by tests: each test finds them as they were launched."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from stompkit.testing.launching.condition import Condition
from stompkit.testing.launching.errors import BrokerError
from stompkit.testing.launching.running import CLOCK_MOVED, RunningBroker

__all__ = ["Sharing", "StompBrokerWarning"]

_State = dict[RunningBroker, Condition]
#: The condition of a broker that nobody has changed.
_AS_LAUNCHED: Final = Condition()


class StompBrokerWarning(pytest.PytestWarning):
    """A test has left a shared broker in a state that other tests cannot use."""


class Sharing:
    """pytest hooks that repair shared brokers.

    A test that leaves a shared broker stopped, killed, paused, cut off or with a full disk gets a
    :class:`StompBrokerWarning`. The broker is repaired before the next test that uses one. A test
    may move the clock without a warning; the clock is reset as well. Changes made by a fixture of a
    class, a module or the session remain until that fixture is torn down: each test begins with
    the broker as these fixtures have left it.
    """

    def __init__(self) -> None:
        """Start without brokers."""
        self._brokers: list[RunningBroker] = []
        #: The test that has left each broker in another condition.
        self._culprits: dict[RunningBroker, str] = {}
        #: Active fixtures of a wider scope than a test's that have changed the condition of a
        #: broker, with the state before and after, in the order of their setup.
        self._held: dict[object, tuple[_State, _State]] = {}
        #: The test whose fixtures are being torn down; after the last test, all fixtures are.
        self._ending: pytest.Item | None = None

    @contextmanager
    def share(self, broker: RunningBroker) -> Iterator[RunningBroker]:
        """Register a broker as shared within the context."""
        broker.share()
        self._brokers.append(broker)
        try:
            yield broker
        finally:
            if self._ending is not None:
                # Afterwards nothing is known of this broker.
                self._accuse(self._ending)
            self._brokers.remove(broker)
            self._culprits.pop(broker, None)
            broker.unshare()

    def has(self, broker: RunningBroker) -> bool:
        """Return True if a broker is shared."""
        return broker in self._brokers

    def repair(self, *, is_needed: bool = True) -> None:
        """Bring the shared brokers into the condition in which fixtures of wider scopes left them.

        If that is impossible and the next test needs them, raises ``pytest.fail.Exception``.
        """
        __tracebackhide__ = True
        for broker, wanted in self._changed():
            culprit, defects = self._culprits.get(broker, "an earlier test"), broker.defects
            try:
                wanted.restore(broker)
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
        """Return the conditions of the shared brokers."""
        return {broker: Condition.of(broker) for broker in self._brokers}

    def _changed(self) -> list[tuple[RunningBroker, Condition]]:
        """Return the brokers that a test has changed, with the condition that they should have."""
        changed = []
        for broker, present in self._state().items():
            wanted = _AS_LAUNCHED
            for before, after in self._held.values():
                if broker in after:
                    wanted = wanted.after(before.get(broker, _AS_LAUNCHED), after[broker])
            if present != wanted:
                changed.append((broker, wanted))
        return changed

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
            after = self._state()
            if after != {broker: before.get(broker, _AS_LAUNCHED) for broker in after}:
                self._held[fixturedef] = before, after

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """Forget the changes of such a fixture."""
        self._held.pop(fixturedef, None)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Warn about defects that a test has left, after the teardown of its fixtures."""
        self._ending = item
        try:
            return (yield)
        finally:
            self._ending = None
            self._accuse(item)

    def _accuse(self, item: pytest.Item) -> None:
        for broker, wanted in self._changed():
            if broker not in self._culprits:
                self._culprits[broker] = item.nodeid
                defects = [each for each in broker.defects if each not in wanted.defects]
                if defects in ([], [CLOCK_MOVED]):
                    continue
                item.warn(
                    StompBrokerWarning(
                        f"{item.nodeid} left {broker.name} at {broker.url} {' and '.join(defects)};"
                        " other tests share this broker, so it is put right before the next one."
                        " Undo it in the test, or use stomp_broker_factory() for another broker."
                    )
                )
