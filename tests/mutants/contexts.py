"""A plug-in of pytest that makes the path of each test file a context of coverage.py.

Processes that a test starts have the context, too: ``coverage.ini`` takes it from the environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from coverage import Coverage

_VARIABLE = "STOMPKIT_TEST_FILE"


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Switch to the context of the test's file."""
    name = item.path.relative_to(item.config.rootpath).as_posix()
    if os.environ.get(_VARIABLE) != name:
        os.environ[_VARIABLE] = name
        measuring = Coverage.current()
        assert measuring is not None, "COVERAGE_PROCESS_START is not set to coverage.ini"
        measuring.switch_context(name)
    yield
