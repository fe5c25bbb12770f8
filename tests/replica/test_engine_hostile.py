"""A replica survives any message of a channel, and rejects invalid contents."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from stompkit.replica.applier import Applier
from stompkit.replica.data.documents import DocumentData
from stompkit.replica.engine import Engine, EngineSettings, Outgoing
from stompkit.replica.messages import Message, pack
from stompkit.replica.rules import Rules
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.store import Store
from stompkit.replication.model.events import Changeset, Revision, RowChange, Source, encode
from tests.effort import drawn

WALL = 1_800_000_000.0
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


class Target:
    """A connected engine with one note, and its sent messages."""

    def __init__(self, selection: str = "") -> None:
        """Create it in memory; ``selection`` is that of its tables."""
        self.database = create_engine("sqlite://", poolclass=StaticPool)
        self.store = Store(self.database)
        self.store.create()
        data = DocumentData()
        data.create(self.database)
        self.time = 0.0
        self.sent: list[Outgoing] = []
        self.applier = Applier(data, Rules(), wall=lambda: WALL, chance=random.Random(1))
        self.engine = Engine(
            self.store,
            self.applier,
            EngineSettings(trunk_id="0A", channels=("c", "d"), branch_id="A", selection=selection),
            wall=lambda: WALL,
            monotonic=lambda: self.time,
            chance=random.Random(2),
            send=self.sent.append,
        )
        self.engine.open()
        with self.store.transaction() as tx:
            change = RowChange(table="doc.n", action="write", key={"id": "1"}, after={"x": 1})
            self.applier.write(tx, [change])
        self.engine.wake()
        self.engine.connected(0)
        self.engine.connected(1)
        self.pass_time(5.0)
        self.sent.clear()

    def hear(self, kind: str, facts: dict[str, Any], items: list[bytes] | None = None) -> None:
        """Receive a message of another node, and run its effects."""
        message = Message(kind, "Z~00000001", facts, items or [])
        frames = [(packet.headers, packet.body) for packet in pack(message)]
        self.engine.receive(0, frames)
        self.pass_time(30.0)

    def pass_time(self, seconds: float) -> None:
        """Run the due calls in that time, up to a limit."""
        until = self.time + seconds
        for _ in range(200):
            deadline = self.engine.deadline
            if deadline is None or deadline > until:
                break
            self.time = max(self.time, deadline)
            self.engine.poll()
        else:
            pytest.fail("the engine does not come to rest")
        self.time = until

    @property
    def rows(self) -> dict[str, tuple[str, int]]:
        """The digests of its tables."""
        return self.engine.status().digests


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70), st.booleans(), st.none(), st.floats(allow_nan=False)
)
NAMES = st.one_of(
    st.sampled_from(["A~00000000", "Z~00000001", "", "to", "vector", "~", "0" * 300]),
    st.text(max_size=20),
)
ANYTHING = st.recursive(
    st.one_of(NUMBERS, NAMES),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
OTHER = {"Z~00000001": 3, "Y~00000002": 9}
#: Valid contents of each kind of message, for any receiver.
SOUND: dict[str, dict[str, Any]] = {
    "have": {"trunk": "0A", "counter": 3, "vector": OTHER, "seen": {"Y~00000002": 2}, "ask": True}
    | {"sessions": [["s", 0]], "forgotten": {"X~00000003": 1}, "digests": {"doc.n": ["0", 1]}},
    "want": {"number": 1, "ranges": {"A~00000000": [1, 9]}, "most": 5, "most_bytes": 9},
    "sent": {"number": 1, "count": 1},
    "gone": {"number": 1, "floor": OTHER},
    "page_want": {"number": 1, "after": "", "most_bytes": 9},
    "page": {"number": 1, "after": "", "upto": "", "vector": OTHER, "clocks": {}, "heads": []}
    | {"hlc": 1},
    "parted": {"ids": [[1, "0123456789abcdef"], [7, ""]]},
    "changes": {},
    "news": {},
}


@settings(max_examples=drawn(100))
@given(
    st.sampled_from(sorted(SOUND)),
    st.data(),
    st.lists(st.binary(max_size=60), max_size=3),
)
def test_facts_of_any_kind_harm_nothing(kind: str, data: st.DataObject, items: list[bytes]) -> None:
    target = Target()
    before = target.rows
    own = {"to": target.engine.origin, "origin": target.engine.origin}
    facts = own | SOUND[kind]
    wrong = data.draw(st.dictionaries(st.sampled_from(sorted(facts)), ANYTHING, max_size=2))
    try:
        pack(Message(kind, "Z~00000001", facts | wrong, items))
    except (ValueError, OverflowError):
        return  # no sender can claim that
    target.hear(kind, facts | wrong, items)
    assert target.rows == before


@pytest.mark.parametrize("after", ["", "zz", "0", "00" * 16, "ff" * 16])
def test_a_page_is_asked_for_behind_anything(after: str) -> None:
    target = Target()
    have = {"trunk": "0A", "counter": 1, "vector": {}, "sessions": [["s", 0]]}
    target.hear("have", have)
    target.hear(
        "page_want",
        {"to": target.engine.origin, "number": 1, "after": after, "most_bytes": 2**62},
    )
    assert target.engine.status().counts.get("sent", 0) > 0


def changeset(**changes: Any) -> bytes:
    """Return a changeset of the other node, as bytes."""
    revision = {"trunk": "0A", "hlc": 1, "context": {}} | changes.pop("revision", {})
    made = Changeset(
        id="",
        origin=changes.pop("origin", "Z~00000001"),
        sequence=changes.pop("sequence", 1),
        timestamp=NOON,
        changes=changes.pop("changes", ()),
        source=Source(kind="replica"),
        revision=Revision(**revision),
    )
    return SignedChangeset(encode(made)).encode()


ROW = RowChange(table="doc.n", action="write", key={"id": "1"}, after={"x": 2})


@pytest.mark.parametrize(
    "octets",
    [
        changeset(revision={"trunk": "B"}, changes=(ROW,)),
        changeset(revision={"hlc": -1}, changes=(ROW,)),
        changeset(revision={"context": {"A~zz": 1}}, changes=(ROW,)),
        changeset(sequence=0, changes=(ROW,)),
        changeset(origin="Z", changes=(ROW,)),
        changeset(changes=(RowChange(table="doc.n", action="truncate", key={}),)),
        changeset(revision={"replaces": (("A~00000001", 1, "0" * 16),)}, changes=(ROW,)),
        b"",
        b" ",
        b" {}",
        b"x" * 1000,
        b"\xff\xfe",
    ],
)
def test_a_changeset_that_no_replica_makes_is_refused(octets: bytes) -> None:
    target = Target()
    before = target.rows
    target.hear("changes", {}, [octets])
    assert target.rows == before
    status = target.engine.status()
    assert status.counts["refused"] == 1
    assert len(status.warnings) == 1
    assert status.held == 0


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(b"bad", id="unreadable"),
        pytest.param(changeset(origin="Y~00000001", revision={"trunk": "B"}), id="refused"),
    ],
)
def test_a_good_changeset_beside_a_bad_one_is_applied(bad: bytes) -> None:
    target = Target()
    target.hear("changes", {}, [bad, changeset(changes=(ROW,)), bad])
    assert target.engine.status().vector["Z~00000001"] == 1


@pytest.mark.parametrize("together", [False, True])
def test_two_changesets_with_one_number_are_a_fork(*, together: bool) -> None:
    """A database and its copy are heard in one message of a relay, or one after the other."""
    other = RowChange(table="doc.n", action="write", key={"id": "1"}, after={"x": 3})
    both = [changeset(changes=(ROW,)), changeset(changes=(other,))]
    target = Target()
    for octets in [both] if together else [[each] for each in both]:
        target.hear("changes", {}, octets)
    status = target.engine.status()
    assert status.vector["Z~00000001"] == 1
    assert any("a database is in use twice" in each for each in status.warnings)


def test_a_clock_that_is_far_ahead_is_not_followed() -> None:
    target = Target()
    target.hear("changes", {}, [changeset(revision={"hlc": 2**62}, changes=(ROW,))])
    with target.store.transaction() as tx:
        change = RowChange(table="doc.n", action="update", key={"id": "1"}, after={"x": 3})
        made = target.applier.write(tx, [change])
    assert made is not None
    assert made.changeset.revision is not None
    assert made.changeset.revision.hlc < (WALL + 60) * 1_000_000
