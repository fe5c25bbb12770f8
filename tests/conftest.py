"""What all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.effort import IS_CAMPAIGN

# A machine that is busy makes no test fail.
settings.register_profile("stompkit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# For what is run under coverage besides, and slow there.
settings.register_profile("few", settings.get_profile("stompkit"), max_examples=25)
settings.load_profile("stompkit")

if IS_CAMPAIGN:
    os.environ["PYTEST_TIMEOUT"] = "0"

# A shell has what it runs in the background ignore Ctrl-C, and so would all that tests start, and
# send SIGINT to.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["pytester", "tests.browser"]
#: Projects of their own, which tests run.
collect_ignore = ["integration/neighbours", "integration/stranger"]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Take back what pytest-twisted does to a test of Hypothesis.

    It wraps the test each time that it is called, so that one with parameters would be wrapped
    several times, and fail.
    """
    hypothesis = getattr(pyfuncitem.obj, "hypothesis", None)
    inner = hypothesis and hypothesis.inner_test
    try:
        return (yield)
    finally:
        if hypothesis is not None:
            hypothesis.inner_test = inner
