"""Signals end a run once, and prevent no report."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from stompkit.conformance.run.signals import ENDING, hold_signals, interruptible


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Handle the signals of these tests in Python, also where they were ignored."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", ENDING)
def test_only_the_first_signal_interrupts(first: signal.Signals) -> None:
    with interruptible() as received:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(first)
        for number in ENDING:
            signal.raise_signal(number)
    assert received == [first]


def test_no_signal_interrupts_the_reports_of_a_finished_run() -> None:
    with interruptible() as received:
        hold_signals()
        for number in ENDING:
            signal.raise_signal(number)
    assert received == []


def test_second_ctrl_c_ends_the_reports() -> None:
    with interruptible():
        hold_signals()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_ignored_signals_remain_ignored() -> None:
    """As those of a program that was started by ``nohup``."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruptible() as received:
        signal.raise_signal(signal.SIGHUP)
        hold_signals()
        signal.raise_signal(signal.SIGHUP)
    assert received == []
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_handlers_of_others_are_left_alone() -> None:
    hold_signals()
    with interruptible():
        pass
    assert {signal.getsignal(number) for number in ENDING} == {signal.default_int_handler}
