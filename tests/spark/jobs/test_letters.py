"""Sending of dead letters to a broker, without a broker and without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stompkit.replication.model.frames import Packet
from stompkit.spark.apply import Applied
from stompkit.spark.eventstore import SparkEventStore
from stompkit.spark.eventstore.files import DEAD_LETTERS
from stompkit.spark.jobs import dead_letters, events, replicate
from stompkit.spark.jobs.events import Events
from stompkit.spark.jobs.replicate import Replicate
from stompkit.spark.jobs.settings import PipelineSettings, parse
from stompkit.spark.states import Place, Problem
from stompkit.spark.targets import open_target
from stompkit.spark.targets.parquet import ParquetTarget
from stompkit.spark.targets.sql import SqlTarget


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the letters that a broker would have received."""
    ids: list[str] = []

    def send(letters: object, packets: list[Packet]) -> None:
        ids.extend(packet.headers["event-id"] for packet in packets)

    monkeypatch.setattr(dead_letters.Letters, "_send", send)
    return ids


def _settings(folder: Path, **more: Any) -> PipelineSettings:
    letters = {"hosts": "localhost", "destination": "/queue/letters"}
    source = {"spool": str(folder / "spool")}
    found = {"name": "shop", "source": source, "state-dir": str(folder), "dead-letter": letters}
    return parse({**found, **more})


def _bury(folder: Path, ordinal: int) -> int:
    """Record a dead letter, as a batch does."""
    target = ParquetTarget(f"parquet://{folder}")
    problem = Problem((0, ordinal, 0), "write", "t", "", "?")
    return target.bury([problem], pipeline="shop", spool="s")


NOTHING: Any = None


def test_dead_letters_of_a_batch_that_fails_after_its_commit_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: list[str]
) -> None:
    target = {"url": f"parquet://{tmp_path / 'target'}"}
    how = {"on-problem": "dead-letter"}
    fails = False

    def apply_changes(*_: object, **__: object) -> Applied:
        if fails:
            _bury(tmp_path / "target", 7)
            raise KeyboardInterrupt
        return Applied()

    monkeypatch.setattr(replicate, "apply_changes", apply_changes)
    with closing(Replicate(_settings(tmp_path, target=target, apply=how))) as job:
        job.apply(NOTHING, 0, "s")
        job.finish("s")
        assert sent == []
        fails = True
        with pytest.raises(KeyboardInterrupt):
            job.apply(NOTHING, 1, "s")
        fails = False
        # It is repeated, and nothing of it is new.
        job.apply(NOTHING, 1, "s")
        job.finish("s")
    assert sent == ["shop-s-0-7-0"]


class _Functions:
    """Replacement for functions of Spark without a JVM; their results are unused."""

    def col(self, name: str) -> _Functions:
        """Replace any column."""
        return self

    def count_if(self, column: object) -> _Functions:
        """Replace a count."""
        return self

    alias = col


class _Frame:
    """Replacement for a batch with an invalid message."""

    def observe(self, *_: object) -> _Frame:
        """Return the same batch."""
        return self

    where = observe


class _Counts:
    """Replacement for the counts of Spark."""

    get: Mapping[str, int] = {"poison": 1}


def test_dead_letters_of_the_event_store_are_sent_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: list[str]
) -> None:
    how = {"path": str(tmp_path / "events"), "on-problem": "dead-letter"}
    job = Events(_settings(tmp_path, events=how))
    letters = tmp_path / "events" / DEAD_LETTERS
    number = 7

    def bury(own: Events, df: object, spool: str) -> int:
        made = _bury(letters, number)
        if made and number == 8:
            raise KeyboardInterrupt
        return made

    monkeypatch.setattr(events, "F", _Functions())
    monkeypatch.setattr(events, "Observation", _Counts)
    monkeypatch.setattr(Events, "_bury", bury)
    monkeypatch.setattr(SparkEventStore, "write_changes", lambda *_, **__: 0)
    frame: Any = _Frame()
    job.apply(frame, 0, "s")
    job.finish("s")
    assert sent == ["shop-s-0-7-0"]
    number = 8
    with pytest.raises(KeyboardInterrupt):
        job.apply(frame, 1, "s")
    job.apply(frame, 1, "s")
    job.finish("s")
    assert sent == ["shop-s-0-7-0", "shop-s-0-8-0"]


@pytest.mark.parametrize("kind", ["sqlite", "parquet"])
def test_dead_letters_are_sent_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: list[str], kind: str
) -> None:
    monkeypatch.setattr(dead_letters, "_PAGE", 2)
    url = f"parquet://{tmp_path / 'target'}" if kind == "parquet" else f"sqlite:///{tmp_path / 'd'}"
    target = open_target(url)
    target.prepare()

    def bury(*places: Place) -> None:
        problems = [Problem(place, "write", "t", "", "?") for place in places]
        if isinstance(target, ParquetTarget):
            target.bury(problems, pipeline="shop", spool="s")
        else:
            assert isinstance(target, SqlTarget)
            session = target._session
            with session.database.transaction() as connection:
                session.books.bury(connection, "shop", "s", problems)

    calls: list[int] = []
    send = dead_letters.Letters._send

    def counted(letters: dead_letters.Letters, packets: list[Packet]) -> None:
        calls.append(len(packets))
        send(letters, packets)

    monkeypatch.setattr(dead_letters.Letters, "_send", counted)
    settings = _settings(tmp_path, target={"url": url}, apply={"on-problem": "dead-letter"})
    with closing(target):
        # The changes of one message are on two pages.
        bury((1, 4, 0), (0, 7, 1), (0, 7, 0), (0, 7, 2), (0, 9, 0))
        with closing(Replicate(settings)) as job:
            job.finish("s")
            assert calls == [2, 2, 1]
            # A letter of an earlier message, but of another partition.
            bury((2, 1, 0), (0, 10, 0))
            job.finish("s")
            assert calls == [2, 2, 1]
        # Another process always reads the files.
        with closing(Replicate(settings)) as job:
            job.finish("s")
    places = ["0-7-0", "0-7-1", "0-7-2", "0-9-0", "1-4-0", "0-10-0", "2-1-0"]
    assert sent == [f"shop-s-{place}" for place in places]
