"""Garbage collection is less frequent while a broker runs, and is restored afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from stompkit.server.process.collector import CollectorSettings

#: What Python 3.11 starts with; the suite has other ones.
DEFAULTS = (700, 10, 10)


@pytest.fixture(autouse=True)
def default_thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*DEFAULTS)
    yield
    gc.set_threshold(*before)


@pytest.fixture
def collector() -> Iterator[CollectorSettings]:
    settings = CollectorSettings()
    yield settings
    settings.undo()


def test_it_looks_less_often_and_not_at_what_was_there(collector: CollectorSettings) -> None:
    collector.apply()
    assert gc.get_threshold() > DEFAULTS
    assert gc.get_freeze_count() > 0


def test_what_is_left_in_cycles_is_still_found(collector: CollectorSettings) -> None:
    class Left:
        """An object that refers to itself."""

        count = 0

        def __init__(self) -> None:
            self.self = self

        def __del__(self) -> None:
            Left.count += 1

    collector.apply()
    for _ in range(100_000):
        Left()
    assert Left.count > 0


def test_all_is_as_before_afterwards() -> None:
    settings = CollectorSettings()
    settings.apply()
    settings.apply()
    settings.undo()
    assert gc.get_threshold() == DEFAULTS
    assert gc.get_freeze_count() == 0
    settings.undo()
    assert gc.get_threshold() == DEFAULTS
