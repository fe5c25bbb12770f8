"""A broker for test cases of ``unittest`` and ``twisted.trial``."""

from __future__ import annotations

import json
import unittest
from typing import Any, ClassVar

from stompkit.testing._obtaining import OwnBrokerNeededError, obtain, set_apart
from stompkit.testing._settings import Settings, from_environment
from stompkit.testing.launching.errors import BrokerMissingError
from stompkit.testing.launching.launch import RunningBroker

__all__ = ["StompBrokerMixin"]


class StompBrokerMixin:
    """Gives a test case ``self.stomp_broker``; put it before the TestCase class.

    ::

        class TestOrders(StompBrokerMixin, unittest.TestCase):
            def test_one(self):
                connect(self.stomp_broker.host, self.stomp_broker.port)

    The broker is launched with the first test, shared by all test cases with the same settings,
    and stopped when the process ends. Each test gets different names of destinations. The
    environment configures it: ``STOMPKIT_MQ=host:port``, ``STOMPKIT_MQ_BROKER=rabbitmq`` and so on.
    """

    #: Configuration of the broker: fields of stompkit.testing.LaunchConfig.
    stomp_broker_fields: ClassVar[dict[str, Any]] = {}
    stomp_broker: RunningBroker

    _brokers: ClassVar[dict[str, RunningBroker]] = {}

    def setUp(self) -> None:
        """Create the broker; skip the test if the server is not installed."""
        settings = Settings.read(from_environment)
        key = json.dumps(self.stomp_broker_fields, sort_keys=True, default=str)
        broker = self._brokers.get(key)
        if broker is None or not broker.is_running:
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
        # The next class in the MRO is that of the test case.
        super().setUp()  # type: ignore[misc]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the broker, which belongs to this process.

        Runners with several processes pickle the test case of a failed subtest.
        """
        state = super().__getstate__()
        assert isinstance(state, dict)
        return {name: value for name, value in state.items() if name != "stomp_broker"}
