"""Stores written by other versions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stompkit.server.interfaces import StoreError
from stompkit.server.stores.versions import upgrade

MIGRATIONS: dict[int, Callable[[list[str]], None]] = {
    1: lambda store: store.append("1 to 2"),
    2: lambda store: store.append("2 to 3"),
}


def test_a_store_is_brought_to_our_version_step_by_step() -> None:
    store: list[str] = []
    upgrade("the store", 1, 3, MIGRATIONS, store)
    assert store == ["1 to 2", "2 to 3"]


def test_a_store_of_our_version_is_left_as_it_is() -> None:
    store: list[str] = []
    upgrade("the store", 3, 3, MIGRATIONS, store)
    assert store == []


@pytest.mark.parametrize(("found", "wanted"), [(0, 3), (2, 4), (4, 3)])
def test_nothing_is_done_to_a_store_without_a_way_to_our_version(found: int, wanted: int) -> None:
    store: list[str] = []
    with pytest.raises(StoreError, match=f"the store is of version {found}.*import"):
        upgrade("the store", found, wanted, MIGRATIONS, store)
    assert store == []
