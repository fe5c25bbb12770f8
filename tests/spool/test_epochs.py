"""Readers of a spool that is replaced by an older copy of it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stompkit.spool import OtherSpoolError, Record, SpoolReader, SpoolWriter
from tests.spool.made import between, fill, former, record, several


class Copies(RuleBasedStateMachine):
    """A spool that writers fill, that is copied and restored, and a reader that remembers."""

    def __init__(self) -> None:
        """Make a folder; its spool is made by a rule."""
        super().__init__()
        self.base = Path(tempfile.mkdtemp(prefix="stompkit-epochs-"))
        self.folder = self.base / "spool"
        self.copies: list[Path] = []
        self.made = 0
        self.writer: SpoolWriter | None = None
        #: Ordinals, epoch and messages of the reader.
        self.ordinals: tuple[int, ...] = (0, 0)
        self.epoch = ""
        self.read: list[list[Record]] = [[], []]

    def teardown(self) -> None:
        """Remove everything."""
        self.close()
        shutil.rmtree(self.base)

    @initialize()
    def create(self) -> None:
        """Create the spool."""
        SpoolWriter(self.folder, partitions=2, sync=False).close()

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        """Append new messages."""
        if self.writer is None:
            self.writer = SpoolWriter(self.folder, sync=False)
        group = [
            record(number, destination=f"/queue/{number % 5}")
            for number in range(self.made, self.made + count)
        ]
        assert self.writer.append(group) == count
        self.made += count

    @rule()
    def close(self) -> None:
        """Let the writer end."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    @rule()
    def copy(self) -> None:
        """Copy the spool."""
        target = self.base / f"copy-{len(self.copies)}"
        shutil.copytree(self.folder, target)
        self.copies.append(target)

    @rule(which=st.integers(0, 20))
    def restore(self, which: int) -> None:
        """Replace the spool by a copy."""
        if self.copies:
            self.close()
            shutil.rmtree(self.folder)
            shutil.copytree(self.copies[which % len(self.copies)], self.folder)

    @rule(part=st.integers(0, 10), other=st.integers(0, 10))
    def read_on(self, part: int, other: int) -> None:
        """Let the reader read further."""
        if self.is_same():
            reader = SpoolReader(self.folder)
            head = reader.head()
            self.ordinals = tuple(
                min(start + more, end)
                for start, more, end in zip(self.ordinals, (part, other), head, strict=True)
            )
            self.epoch = reader.epoch(self.ordinals)
            self.read = self.before()

    def before(self) -> list[list[Record]]:
        """Return the messages of the spool before the ordinals of the reader."""
        reader = SpoolReader(self.folder)
        ends = [min(pair) for pair in zip(self.ordinals, reader.head(), strict=True)]
        return [between(reader, 0, end, number) for number, end in enumerate(ends)]

    def is_same(self) -> bool:
        """Return True if the reader has read what is there."""
        return self.before() == self.read

    @invariant()
    def a_reader_notices_other_messages_and_nothing_else(self) -> None:
        """Compare the verdict with the messages."""
        if not self.folder.exists():
            return
        reader = SpoolReader(self.folder)
        if self.is_same():
            reader.check_epoch(self.ordinals, self.epoch)
        else:
            with pytest.raises(OtherSpoolError, match="is an older copy of the spool"):
                reader.check_epoch(self.ordinals, self.epoch)


TestCopies = Copies.TestCase
TestCopies.settings = settings(stateful_step_count=20)


def test_a_spool_without_known_epochs_is_not_refused(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    epoch = SpoolReader(tmp_path).epoch([10])
    assert epoch
    (tmp_path / "epochs.json").unlink()
    SpoolReader(tmp_path).check_epoch([10], epoch)
    with SpoolWriter(tmp_path) as writer:
        writer.append(several(10, 20))
    SpoolReader(tmp_path).check_epoch([10], epoch)


def test_a_spool_of_an_earlier_version_has_epochs_from_its_next_writer_on(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    former(tmp_path)
    assert SpoolReader(tmp_path).epoch([10]) == ""
    with SpoolWriter(tmp_path) as writer:
        writer.append(several(10, 20))
    reader = SpoolReader(tmp_path)
    assert reader.epoch([10]) == ""
    assert reader.epoch([11]) == reader.epoch([20]) != ""
    reader.check_epoch([10], "")


def test_many_epochs_need_no_more_room(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    first = SpoolReader(tmp_path).epoch([10])
    path = tmp_path / "epochs.json"
    sizes = []
    for number in range(10, 260):
        with SpoolWriter(tmp_path, sync=False, remembered=0) as writer:
            writer.append([record(number)])
        sizes.append(path.stat().st_size)
    assert max(sizes[-40:]) < 1.02 * sizes[200]
    reader = SpoolReader(tmp_path)
    # It cannot be known any more.
    reader.check_epoch([10], first)
    reader.check_epoch([260], reader.epoch([260]))
