"""Futures of several results."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from stompkit._common.futures import all_of


def futures(count: int) -> list[Future[None]]:
    return [Future() for _ in range(count)]


def test_all_are_done_when_the_last_is() -> None:
    first, second = made = futures(2)
    whole = all_of(made)
    second.set_result(None)
    assert not whole.done()
    first.set_result(None)
    assert whole.result(0) is None


def test_the_first_error_is_reported_at_once() -> None:
    first, second, third = made = futures(3)
    whole = all_of(made)
    second.set_exception(ValueError("second"))
    with pytest.raises(ValueError, match="second"):
        whole.result(0)
    first.set_exception(ValueError("first"))
    third.set_result(None)
    with pytest.raises(ValueError, match="second"):
        whole.result(0)


def test_nothing_is_done_at_once() -> None:
    assert all_of([]).result(0) is None
