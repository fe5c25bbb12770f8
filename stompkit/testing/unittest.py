"""A broker for test cases of ``unittest`` and ``twisted.trial``."""

from __future__ import annotations

import json
import unittest
import warnings
from typing import Any, ClassVar

from stompkit.testing._obtaining import OwnBrokerNeededError, obtain, set_apart
from stompkit.testing._settings import Settings
from stompkit.testing.launching.errors import BrokerError, BrokerMissingError
from stompkit.testing.launching.launch import RunningBroker
from stompkit.testing.launching.running import CLOCK_MOVED

__all__ = ["StompBrokerMixin"]


class StompBrokerMixin:
    """Gives a test case ``self.stomp_broker``; put it before the TestCase class.

    ::

        class TestOrders(StompBrokerMixin, unittest.TestCase):
            def test_one(self):
                connect(self.stomp_broker.host, self.stomp_broker.port)

    The broker is launched with the first test, shared by all test cases with the same settings,
    and stopped when the process ends. Each test gets different names of destinations, and a broker
    that works: what a test paused, or moved in time, is put right before the next one. The
    environment configures it: ``STOMPKIT_MQ=host:port``, ``STOMPKIT_MQ_BROKER=rabbitmq`` and so on.
    Under pytest, its options do so, too.
    """

    #: Configuration of the broker: fields of stompkit.testing.LaunchConfig.
    stomp_broker_fields: ClassVar[dict[str, Any]] = {}
    stomp_broker: RunningBroker

    _brokers: ClassVar[dict[str, RunningBroker]] = {}

    def setUp(self) -> None:
        """Create the broker; skip the test if the server is not installed."""
        settings = Settings.of_run()
        key = json.dumps([repr(settings), self.stomp_broker_fields], sort_keys=True, default=str)
        broker = self._brokers.get(key)
        if broker is None or not _is_repaired(broker):
            try:
                broker = obtain(settings, **self.stomp_broker_fields)
            except BrokerMissingError as error:
                if settings.missing == "fail":
                    raise
                raise unittest.SkipTest(str(error)) from None
            except OwnBrokerNeededError as error:
                raise unittest.SkipTest(str(error)) from None
            self._brokers[key] = broker
        set_apart(settings, broker)
        self.stomp_broker = broker
        # The first cleanup is called after all others.
        self.addCleanup(self._accuse)  # type: ignore[attr-defined]
        # The next class in the MRO is that of the test case.
        super().setUp()  # type: ignore[misc]

    def _accuse(self) -> None:
        """Warn if the test has left the broker in a state that other tests cannot use."""
        broker = self.stomp_broker
        if broker.defects not in ((), (CLOCK_MOVED,)):
            name = self.id()  # type: ignore[attr-defined]
            warnings.warn(
                f"{name} left {broker.name} at {broker.url} {' and '.join(broker.defects)}; other"
                " tests share this broker, so it is put right or replaced before the next one",
                RuntimeWarning,
                stacklevel=2,
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the broker, which belongs to this process.

        Runners with several processes pickle the test case of a failed subtest.
        """
        state = super().__getstate__()
        assert isinstance(state, dict)
        return {name: value for name, value in state.items() if name != "stomp_broker"}


def _is_repaired(broker: RunningBroker) -> bool:
    """Repair a running broker; return False if another one has to be launched."""
    if not broker.is_running:
        broker.stop()
        return False
    try:
        broker.repair()
    except (BrokerError, OSError):
        broker.stop()
        return False
    return True
