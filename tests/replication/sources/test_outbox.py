"""The outbox contains exactly the committed changes; the relay publishes each once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest
from sqlalchemy import Engine, event, insert, select, update
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import Session, sessionmaker

from stompkit.replication.model.events import Changeset, EncodedChangeset, RowChange
from stompkit.replication.sources.outbox import Outbox
from stompkit.replication.sources.relay import OutboxError, OutboxRelay
from stompkit.testing.launching.polling import wait_until
from tests.replication.sources.conftest import only
from tests.replication.sources.models import Tag
from tests.replication.sources.received import Received, shown

#: Timeout of any wait, in seconds.
PATIENCE_S = 60.0


class Taker:
    """Collects changesets, and confirms them on request."""

    def __init__(self, *, is_confirming: bool = True) -> None:
        """Start empty."""
        self.taken: list[Changeset] = []
        self.futures: list[Future[Any]] = []
        self.is_confirming = is_confirming

    def __call__(self, changeset: Changeset) -> Future[Any]:
        """Collect a changeset."""
        future: Future[Any] = Future()
        self.taken.append(changeset)
        self.futures.append(future)
        if self.is_confirming:
            future.set_result(None)
        return future

    @property
    def sequences(self) -> list[int]:
        """Their numbers."""
        return [changeset.sequence for changeset in self.taken]


class GroupTaker:
    """Collects groups of changesets, which are confirmed by the caller."""

    def __init__(self) -> None:
        """Start empty."""
        self.groups: list[list[int]] = []
        self.futures: list[Future[Any]] = []

    def send_encoded(self, changesets: Sequence[EncodedChangeset]) -> Future[Any]:
        """Collect a group."""
        self.groups.append([each.sequence for each in changesets])
        self.futures.append(Future())
        return self.futures[-1]


class Pauses(Event):
    """Ends a relay, and notes whether it has paused."""

    has_paused = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait, and note that."""
        self.has_paused = True
        return super().wait(timeout)


@pytest.fixture
def outbox(engine: Engine, sessions: sessionmaker[Session]) -> Iterator[Outbox]:
    """An outbox of all tables."""
    outbox = Outbox(sessions)
    outbox.create(engine)
    yield outbox
    outbox.close()


@pytest.fixture
def relays(engine: Engine) -> Iterator[Any]:
    """A factory of relays that are closed at the end."""
    made: list[OutboxRelay] = []

    def make(publish: Taker | GroupTaker, **settings: Any) -> OutboxRelay:
        made.append(OutboxRelay(engine, publish, **settings))
        return made[-1]

    yield make
    for relay in made:
        relay.close()


def _add(sessions: sessionmaker[Session], *keys: int) -> None:
    for key in keys:
        with sessions.begin() as session:
            session.add(Tag(id=key, word="x"))


def test_what_is_committed_is_relayed_in_order_and_removed(
    sessions: sessionmaker[Session], outbox: Outbox, relays: Any, received: Received
) -> None:
    _add(sessions, *range(1, 21))
    with sessions() as session:
        session.add(Tag(id=99, word="dropped"))
        session.flush()
        session.rollback()
    taker = Taker()
    relay = relays(taker, batch=3, max_unconfirmed=7)
    assert relay.status().backlog == 20
    assert relay.run_once() == 20
    assert taker.sequences == list(range(1, 21))
    shown_all = [shown(change) for each in taker.taken for change in each.changes]
    assert shown_all == [f"write tags {key}" for key in range(1, 21)]
    assert {each.origin for each in taker.taken} == {relay.status().origin}
    assert {each.source.kind for each in taker.taken} == {"outbox"}
    assert relay.status().backlog == 0
    assert relay.run_once() == 0
    assert received.changesets == []


def test_group_stays_in_the_outbox_until_it_is_confirmed(
    sessions: sessionmaker[Session], outbox: Outbox, relays: Any
) -> None:
    _add(sessions, *range(1, 251))
    taker = GroupTaker()
    relay = relays(taker, batch=250, max_unconfirmed=500, poll_s=0.01)
    with pytest.raises(TimeoutError, match="250 changesets were not confirmed"):
        relay.run_once(0.0)
    assert [(each[0], each[-1], len(each)) for each in taker.groups] == [
        (1, 100, 100),
        (101, 200, 100),
        (201, 250, 50),
    ]
    assert relay.status().backlog == 250
    # They are published again, in the same order. The second group is not confirmed.
    stop, run = Event(), Thread(target=lambda: relay.run(stop))
    del taker.groups[:], taker.futures[:]
    run.start()
    assert wait_until(lambda: len(taker.futures) == 3, PATIENCE_S)
    for number in (0, 2):
        taker.futures[number].set_result(None)
    assert wait_until(lambda: relay.status().backlog == 150, PATIENCE_S)
    taker.futures[1].set_result(None)
    assert wait_until(lambda: relay.status().backlog == 0, PATIENCE_S)
    stop.set()
    run.join(PATIENCE_S)
    assert [number for each in taker.groups for number in each] == list(range(1, 251))


def test_large_changesets_are_sent_in_smaller_groups(
    sessions: sessionmaker[Session], outbox: Outbox, relays: Any
) -> None:
    for key, size in enumerate([100, 2_000_000, 100, 600_000, 600_000, 100], 1):
        change = RowChange(table="said", action="write", key={"id": key}, after={"x": "x" * size})
        with sessions.begin() as session:
            outbox.add(session, [change])
    taker = GroupTaker()
    with pytest.raises(TimeoutError):
        relays(taker, poll_s=0.01).run_once(0.0)
    assert taker.groups == [[1], [2], [3, 4], [5, 6]]


def test_group_that_fails_is_published_again(
    sessions: sessionmaker[Session], outbox: Outbox, relays: Any
) -> None:
    _add(sessions, 1, 2, 3)
    taker = GroupTaker()
    relay = relays(taker, poll_s=0.01)
    stop, run = Event(), Thread(target=lambda: relay.run(stop))
    run.start()
    assert wait_until(lambda: len(taker.futures) == 1, PATIENCE_S)
    taker.futures[0].set_exception(ConnectionError("refused"))
    assert wait_until(lambda: len(taker.futures) == 2, PATIENCE_S)
    assert relay.status().backlog == 3
    taker.futures[1].set_result(None)
    assert wait_until(lambda: relay.status().backlog == 0, PATIENCE_S)
    stop.set()
    run.join(PATIENCE_S)
    assert taker.groups == [[1, 2, 3], [1, 2, 3]]


def test_full_relay_waits_until_a_whole_batch_is_confirmed(
    engine: Engine, sessions: sessionmaker[Session], outbox: Outbox, relays: Any
) -> None:
    """Each step is a transaction, so a step for each confirmation would be slow."""
    _add(sessions, *range(1, 61))
    taker = Taker(is_confirming=False)
    relay = relays(taker, batch=10, max_unconfirmed=20, poll_s=PATIENCE_S)
    published: list[int] = []
    run = Thread(target=relay.run_once)
    run.start()

    def has_published(count: int) -> bool:
        return len(taker.futures) >= count

    for confirmed in range(60):
        meant = min(60, 20 + confirmed // 10 * 10)
        assert wait_until(partial(has_published, meant), PATIENCE_S)
        published.append(len(taker.futures))
        taker.futures[confirmed].set_result(None)
        # Time to react too early.
        run.join(0.005)
    run.join(PATIENCE_S)
    assert set(published) <= {20, 30, 40, 50, 60}
    assert relay.status().backlog == 0


def test_relay_without_an_outbox_ends(relays: Any) -> None:
    with pytest.raises(OutboxError, match=r"no outbox: there is no table stompkit_outbox_state\."):
        relays(Taker()).run(Event())


def test_changes_of_one_transaction_are_one_changeset(
    sessions: sessionmaker[Session], outbox: Outbox, relays: Any
) -> None:
    with sessions.begin() as session:
        session.add(Tag(id=1, word="x"))
        session.flush()
        with session.begin_nested() as savepoint:
            session.add(Tag(id=2, word="x"))
            session.flush()
            savepoint.rollback()
        session.execute(insert(Tag), [{"id": 3, "word": "x"}])
        session.add(Tag(id=4, word="x"))
        outbox.add(session, [RowChange(table="said", action="truncate", key={})])
    taker = Taker()
    relays(taker).run_once()
    (changeset,) = taker.taken
    assert [shown(change) for change in changeset.changes] == [
        "write tags 1",
        "write tags 3",
        "write tags 4",
        "truncate said ",
    ]


def test_what_hooks_add_during_the_commit_is_in_the_changeset(
    sessions: sessionmaker[Session], outbox: Outbox, relays: Any
) -> None:
    def more(session: Session) -> None:
        session.add(Tag(id=2, word="by a hook"))

    event.listen(sessions, "before_commit", more)
    with sessions.begin() as session:
        session.add(Tag(id=1, word="x"))
    taker = Taker()
    relays(taker).run_once()
    (changeset,) = taker.taken
    assert [shown(change) for change in changeset.changes] == ["write tags 1", "write tags 2"]


def test_an_outbox_of_no_tables_has_only_what_it_is_given(
    engine: Engine, sessions: sessionmaker[Session], relays: Any
) -> None:
    outbox = Outbox(sessions, ())
    outbox.create(engine)
    with sessions.begin() as session:
        session.add(Tag(id=1, word="x"))
        outbox.add(session, [RowChange(table="said", action="truncate", key={})])
    with Session(engine) as other, pytest.raises(InvalidRequestError):
        outbox.add(other, [])
    outbox.close()
    taker = Taker()
    relays(taker).run_once()
    assert [[shown(each) for each in one.changes] for one in taker.taken] == [["truncate said "]]


# Only one transaction can write to SQLite at a time.
@only("postgresql", "mariadb")
def test_rows_that_become_visible_late_are_numbered_when_they_are_seen(
    sessions: sessionmaker[Session], outbox: Outbox, relays: Any
) -> None:
    taker = Taker()
    relay = relays(taker)
    with sessions() as slow:
        slow.add(Tag(id=1, word="x"))
        slow.flush()
        outbox.committing(slow, _recording(outbox, slow))
        _add(sessions, 2, 3)
        assert relay.run_once() == 2
        slow.commit()
    assert relay.run_once() == 1
    assert taker.sequences == [1, 2, 3]
    assert [each.changes[0].key["id"] for each in taker.taken] == [2, 3, 1]


def _recording(outbox: Outbox, session: Session) -> Any:
    recording = outbox._watch.recording(session)
    assert recording is not None
    return recording


def test_what_was_not_confirmed_is_published_again_as_it_was(
    sessions: sessionmaker[Session], outbox: Outbox, relays: Any
) -> None:
    _add(sessions, 1, 2, 3)
    taker = Taker(is_confirming=False)
    first = relays(taker)
    with pytest.raises(TimeoutError):
        first.run_once(timeout_s=0.0)
    assert first.status().backlog == 3
    first.close()
    _add(sessions, 4)
    again = Taker()
    assert relays(again).run_once() == 4
    assert again.taken[:3] == taker.taken
    assert again.sequences == [1, 2, 3, 4]


def test_what_could_not_be_published_is_published_again(
    sessions: sessionmaker[Session], outbox: Outbox, relays: Any
) -> None:
    _add(sessions, 1, 2)
    taker = Taker(is_confirming=False)
    relay = relays(taker)
    stop = Event()
    thread = Thread(target=relay.run, args=(stop,))
    thread.start()
    try:
        assert wait_until(lambda: len(taker.futures) == 2, PATIENCE_S)
        taker.is_confirming = True
        taker.futures[0].set_exception(ConnectionError("the broker has gone"))
        assert wait_until(lambda: relay.status().backlog == 0, PATIENCE_S)
    finally:
        stop.set()
        thread.join()
    assert taker.taken[2:4] == taker.taken[:2]


def test_rows_can_be_kept_for_a_while(
    engine: Engine, sessions: sessionmaker[Session], outbox: Outbox, relays: Any
) -> None:
    _add(sessions, 1, 2)
    taker = Taker()
    relay = relays(taker, keep_s=3600.0)
    assert relay.run_once() == 2
    assert relay.status().backlog == 0
    rows = outbox.table
    with engine.begin() as connection:
        kept = connection.execute(select(rows.c.sequence).order_by(rows.c.sequence)).scalars()
        assert list(kept) == [1, 2]
        connection.execute(update(rows).where(rows.c.sequence == 1).values(published_at=1.0))
    relays(Taker(), keep_s=3600.0)
    relay.close()
    assert relays(taker, keep_s=3600.0).run_once() == 0
    with engine.connect() as connection:
        assert list(connection.execute(select(rows.c.sequence)).scalars()) == [2]
    assert taker.sequences == [1, 2]


def test_one_relay_publishes_at_a_time(
    sessions: sessionmaker[Session], outbox: Outbox, relays: Any
) -> None:
    _add(sessions, 1)
    first, second = Taker(), Taker()
    leading, standby = relays(first, lease_s=3600.0), relays(second, lease_s=3600.0)
    assert leading.run_once() == 1
    _add(sessions, 2)
    assert standby.run_once() == 0
    assert (leading.status().is_leading, standby.status().is_leading) == (True, False)
    leading.close()
    assert standby.run_once() == 1
    assert second.sequences == [2]


def test_a_relay_that_stands_by_takes_over(
    sessions: sessionmaker[Session], outbox: Outbox, relays: Any
) -> None:
    _add(sessions, 1)
    leading, taker = relays(Taker(), lease_s=3600.0), Taker()
    assert leading.run_once() == 1
    standby = relays(taker, lease_s=3600.0, poll_s=0.01)
    stop = Pauses()
    thread = Thread(target=standby.run, args=(stop,))
    thread.start()
    try:
        assert wait_until(lambda: stop.has_paused, PATIENCE_S)
        _add(sessions, 2)
        leading.close()
        assert wait_until(lambda: taker.taken or not thread.is_alive(), PATIENCE_S)
    finally:
        stop.set()
        thread.join()
    assert taker.sequences == [2]


def test_a_relay_that_has_lost_its_lease_publishes_no_more(
    engine: Engine, sessions: sessionmaker[Session], outbox: Outbox, relays: Any
) -> None:
    first, second = Taker(), Taker()
    leading, other = relays(first, lease_s=3600.0), relays(second, lease_s=3600.0)
    _add(sessions, 1)
    assert leading.run_once() == 1
    # By the clock of the database the lease has expired, whatever its owner assumes.
    state = outbox.metadata.tables["stompkit_outbox_state"]
    with engine.begin() as connection:
        connection.execute(update(state).values(lease_expires=0.0))
    _add(sessions, 2)
    assert other.run_once() == 1
    _add(sessions, 3)
    with pytest.raises(Exception, match="taken the lease"):
        leading.run_once()
    assert leading.run_once() == 0
    assert other.run_once() == 1
    assert (first.sequences, second.sequences) == ([1], [2, 3])


def test_the_origin_of_an_outbox_stays(
    sessions: sessionmaker[Session], outbox: Outbox, relays: Any
) -> None:
    _add(sessions, 1)
    taker = Taker()
    relay = relays(taker, origin="shop")
    relay.run_once()
    relay.close()
    assert taker.taken[0].origin == "shop"
    with pytest.raises(OutboxError, match="shop"):
        relays(taker, origin="other").run_once()
    assert relays(taker).run_once() == 0


def test_the_status_tells_how_old_the_oldest_is(
    engine: Engine, sessions: sessionmaker[Session], outbox: Outbox, relays: Any
) -> None:
    relay = relays(Taker())
    assert relay.status().oldest_age_s == 0.0
    _add(sessions, 1)
    with engine.begin() as connection:
        connection.execute(update(outbox.table).values(stored_at=outbox.table.c.stored_at - 100))
    assert 100 <= relay.status().oldest_age_s < 100 + PATIENCE_S


def test_large_changesets_are_not_read_all_at_once(
    sessions: sessionmaker[Session], outbox: Outbox, relays: Any
) -> None:
    for _ in range(5):
        with sessions.begin() as session:
            row = RowChange(table="t", action="write", key={"id": 1}, after={"x": "y" * 5_000_000})
            outbox.add(session, [row])
    taker = Taker()
    assert relays(taker).run_once() == 5
    assert taker.sequences == [1, 2, 3, 4, 5]


@only("sqlite")
def test_settings_that_make_no_sense_are_refused(engine: Engine) -> None:
    with pytest.raises(ValueError, match="above 0"):
        OutboxRelay(engine, Taker(), batch=0)
    with pytest.raises(ValueError, match="not below"):
        OutboxRelay(engine, Taker(), keep_s=-1.0)
