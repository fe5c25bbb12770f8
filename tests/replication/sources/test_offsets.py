"""Checkpoints survive, in every kind of store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from stompkit.replication.sources.offsets import (
    Checkpoint,
    FileOffsets,
    MemoryOffsets,
    Offsets,
    OffsetsError,
    SqlOffsets,
)
from tests.effort import drawn
from tests.servers import SqlServer

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
CHECKPOINTS = st.builds(
    Checkpoint,
    origin=_TEXT,
    sequence=st.integers(0, 2**63 - 1),
    position=_TEXT,
    state=st.dictionaries(_TEXT, st.integers(0, 9) | _TEXT | st.none(), max_size=3),
)


def test_memory_forgets_with_the_object() -> None:
    offsets = MemoryOffsets()
    assert offsets.load() is None
    checkpoint = Checkpoint(origin="o", sequence=1, position="p")
    offsets.store(checkpoint)
    assert offsets.load() == checkpoint
    assert MemoryOffsets().load() is None


Reopen = Callable[[], Offsets]


@pytest.fixture(params=["file", "sqlite", "postgresql", "mariadb"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    """Return a function that opens the same offsets again."""
    if request.param == "file":
        yield lambda: FileOffsets(tmp_path / "offsets")
        return
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/offsets.db"
    else:
        server: SqlServer = request.getfixturevalue(request.param)
        url = server.url(server.new_database())
    engine = create_engine(url)
    yield lambda: SqlOffsets(engine, "p")
    engine.dispose()


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=drawn(20),
)
@given(checkpoints=st.lists(CHECKPOINTS, min_size=1, max_size=3))
def test_the_last_checkpoint_is_loaded(reopen: Reopen, checkpoints: list[Checkpoint]) -> None:
    for checkpoint in checkpoints:
        reopen().store(checkpoint)
    assert reopen().load() == checkpoints[-1]


def test_nothing_is_loaded_where_nothing_was_stored(reopen: Reopen) -> None:
    assert reopen().load() is None
    assert reopen().load() is None


def test_two_publishers_have_a_row_each(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/offsets.db")
    one, two = (SqlOffsets(engine, name) for name in ("one", "two"))
    one.store(Checkpoint(origin="1", sequence=1, position=""))
    assert two.load() is None
    engine.dispose()


def test_a_place_that_can_not_be_written_to_is_found_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileOffsets(tmp_path / "missing" / "offsets").load()


def test_what_is_no_checkpoint_is_told(tmp_path: Path) -> None:
    path = tmp_path / "offsets"
    path.write_text("{}")
    with pytest.raises(OffsetsError, match="offsets holds no checkpoint"):
        FileOffsets(path).load()
    engine = create_engine(f"sqlite:///{tmp_path}/offsets.db")
    offsets = SqlOffsets(engine, "p")
    offsets.store(Checkpoint(origin="1", sequence=1, position=""))
    with engine.begin() as connection:
        connection.execute(text("UPDATE stompkit_checkpoints SET checkpoint = x'ff'"))
    with pytest.raises(OffsetsError, match="row 'p'"):
        offsets.load()
    engine.dispose()


def test_a_crash_while_storing_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = FileOffsets(tmp_path / "offsets")
    old = Checkpoint(origin="o", sequence=1, position="p")
    offsets.store(old)

    def crash(descriptor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", crash)
        with pytest.raises(KeyboardInterrupt):
            offsets.store(Checkpoint(origin="o", sequence=2, position="q"))
    assert offsets.load() == old


def test_a_file_is_for_its_owner_only(tmp_path: Path) -> None:
    FileOffsets(tmp_path / "offsets").store(Checkpoint(origin="o", sequence=1, position="p"))
    assert (tmp_path / "offsets").stat().st_mode & 0o077 == 0


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    """A limit for the size of files simulates a full disk, in a child process."""
    path = tmp_path / "checkpoint"
    FileOffsets(path).store(Checkpoint(origin="o", sequence=1, position="a"))
    program = (
        "import resource, signal, sys\n"
        "from stompkit.replication.sources.offsets import Checkpoint, FileOffsets\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "try:\n"
        "    FileOffsets(sys.argv[1]).store(Checkpoint(origin='o', sequence=2, position='b'))\n"
        "except OSError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert str(path) in done.stdout
    kept = FileOffsets(path).load()
    assert kept is not None
    assert kept.sequence == 1
