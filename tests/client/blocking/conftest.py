"""Settings of the tests of blocking clients."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def log() -> None:
    """Leave the log alone: these tests check exceptions, and the client in its thread logs them."""
