"""Registered readers."""

from __future__ import annotations

from pathlib import Path

import pytest

from stompkit.spool import BrokenSpoolError, SpoolError, SpoolWriter, readers
from stompkit.spool.readers import Reader


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    SpoolWriter(tmp_path, partitions=2).close()
    return tmp_path


def test_a_reader_is_listed_as_it_was_registered(spool: Path) -> None:
    assert readers.listed(spool) == {}
    made = readers.register(spool, "stream.a", (3, 4), clock=lambda: 7.5)
    assert made == Reader((3, 4), 7.5)
    assert readers.listed(spool) == {"stream.a": made}


def test_registering_again_leaves_a_reader_where_it_is(spool: Path) -> None:
    readers.register(spool, "a", (0, 0))
    moved = readers.progress(spool, "a", (5, 6), clock=lambda: 9.0)
    assert readers.register(spool, "a", (0, 0)) == moved
    assert readers.listed(spool) == {"a": Reader((5, 6), 9.0)}


def test_progress_registers_a_reader_that_was_forgotten(spool: Path) -> None:
    readers.progress(spool, "a", (5, 6), clock=lambda: 9.0)
    assert readers.listed(spool) == {"a": Reader((5, 6), 9.0)}


def test_a_forgotten_reader_is_listed_no_more(spool: Path) -> None:
    readers.register(spool, "a", (0, 0))
    readers.register(spool, "b", (0, 0))
    assert readers.forget(spool, "a")
    assert not readers.forget(spool, "a")
    assert list(readers.listed(spool)) == ["b"]


@pytest.mark.parametrize("name", ["", "a/b", "a b", "ä", "x" * 101, "a\n"])
def test_other_names_are_refused(spool: Path, name: str) -> None:
    with pytest.raises(ValueError, match="1 to 100"):
        readers.progress(spool, name, (0, 0))
    with pytest.raises(ValueError, match="1 to 100"):
        readers.forget(spool, name)


@pytest.mark.parametrize("name", [".", "..", "-", "a.json", "x" * 100])
def test_every_allowed_name_works(spool: Path, name: str) -> None:
    readers.register(spool, name, (1, 2))
    assert list(readers.listed(spool)) == [name]
    assert readers.forget(spool, name)


def test_a_reader_says_how_far_it_is_in_each_partition(spool: Path) -> None:
    with pytest.raises(ValueError, match="1 positions for the 2 partitions"):
        readers.progress(spool, "a", (1,))


def test_there_are_readers_of_spools_only(tmp_path: Path) -> None:
    with pytest.raises(SpoolError):
        readers.register(tmp_path, "a", (0,))


def test_a_reader_that_can_not_be_understood_is_told(spool: Path) -> None:
    readers.register(spool, "a", (0, 0))
    (spool / "readers" / "a.json").write_bytes(b"")
    with pytest.raises(BrokenSpoolError, match=r"readers/a\.json"):
        readers.listed(spool)
