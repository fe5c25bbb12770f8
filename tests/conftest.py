"""Fixtures and settings that all tests share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import forking
from tests.effort import IS_CAMPAIGN
from tests.suite import costs

# A busy machine makes no test fail.
settings.register_profile("stompkit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# For tests that also run under coverage, and are slow there.
settings.register_profile("few", settings.get_profile("stompkit"), max_examples=25)
settings.load_profile("stompkit")

if IS_CAMPAIGN:
    os.environ["PYTEST_TIMEOUT"] = "0"

# A shell makes its background jobs ignore SIGINT. All processes that tests start would inherit
# that, and tests send SIGINT to them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# ``nohup`` makes all processes ignore SIGHUP. With a handler pytest still ignores it, and processes
# that tests start do not.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

forking.install()

# A part of the suite has several hundred thousand objects that stay. With the thresholds of Python,
# the search for garbage takes a fifth of its processor time.
gc.set_threshold(50_000, 20, 50)

pytest_plugins = ["pytester", "tests.browser"]
#: Separate projects, which tests run.
collect_ignore = ["integration/neighbours", "integration/stranger"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that take long, before tests are selected by markers."""
    costs.mark(items)


def pytest_collection_finish() -> None:
    """Leave all tests out of the search for garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Undo the wrapping of Hypothesis tests by pytest-twisted.

    It wraps the test at each call. A test with parameters would be wrapped several times, and fail.
    """
    hypothesis = getattr(pyfuncitem.obj, "hypothesis", None)
    inner = hypothesis and hypothesis.inner_test
    try:
        return (yield)
    finally:
        if hypothesis is not None:
            hypothesis.inner_test = inner
