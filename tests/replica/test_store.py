"""A store returns the changesets, nodes and settings that it was given."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from stompkit.replica.store import (
    LONGEST_NAME,
    LONGEST_ORIGIN,
    ChangesetRecord,
    OriginRecord,
    PeerRecord,
    Store,
)
from tests.replica.stores import (
    A,
    B,
    changeset,
    database_url,
    engine,
    held,
    row,
    server_urls,
    store,
)

__all__ = ["database_url", "engine", "server_urls", "store"]


def positions(records: list[ChangesetRecord]) -> list[int]:
    return [each.position for each in records]


# Changesets.


def test_a_changeset_is_given_as_it_was_added(store: Store) -> None:
    given = changeset(
        1,
        author="Zoë 🦔",
        comment="line one\nline two",
        changes=3,
        via=B,
        signature=bytes(range(64)),
        body=bytes(range(256)) * 1000,
    )
    with store.transaction() as tx:
        tx.add_changesets([given])
        assert tx.changeset(A, 1) == given
    with store.reading() as reader:
        assert reader.changeset(A, 1) == given
        assert reader.changeset(A, 2) is None
        assert reader.changeset(B, 1) is None


def test_text_that_a_database_refuses_is_kept_in_another_way(store: Store) -> None:
    with store.transaction() as tx:
        tx.add_changesets([changeset(1, comment="a\0b")])
    with store.reading() as reader:
        found = reader.changeset(A, 1)
    assert found is not None
    assert found.comment == "a\N{REPLACEMENT CHARACTER}b"


def test_positions_have_no_gaps(store: Store) -> None:
    with store.transaction() as tx:
        assert tx.last_position() == 0
        tx.add_changesets([changeset(1), changeset(2)])
        assert tx.last_position() == 2
        with pytest.raises(ValueError, match="the next position is 3, not 4"):
            tx.add_changesets([changeset(4)])
        tx.add_changesets([changeset(3)])
    assert store.last_position() == 3
    with store.reading() as reader:
        assert reader.last_position() == 3
        assert positions(reader.changesets()) == [1, 2, 3]


def test_changesets_are_listed_by_position(store: Store) -> None:
    with store.transaction() as tx:
        tx.add_changesets([changeset(n, (n + 1) // 2, A if n % 2 else B) for n in range(1, 9)])
    with store.reading() as reader:
        assert positions(reader.changesets()) == [1, 2, 3, 4, 5, 6, 7, 8]
        assert positions(reader.changesets(after=2, upto=5)) == [3, 4, 5]
        assert positions(reader.changesets(after=2, limit=3)) == [3, 4, 5]
        assert positions(reader.changesets(descending=True, limit=2)) == [8, 7]
        assert positions(reader.changesets(origin=B, after=2)) == [4, 6, 8]
        assert {each.body for each in reader.changesets(with_body=False)} == {None}
        assert reader.changesets(with_body=False)[0].size > 0


def test_a_changeset_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    given = [changeset(n) for n in range(1, 40)]
    with store.transaction() as tx:
        tx.add_changesets(given)
    with store.reading() as reader:
        for length in (1, 2, 3, 63, 64):
            prefix = given[7].id[:length]
            expected = [each.position for each in given if each.id.startswith(prefix)]
            assert positions(reader.by_id(prefix)) == expected
        for wrong in ("", "x", "0" * 65):
            with pytest.raises(ValueError, match="hexadecimal"):
                reader.by_id(wrong)


def test_ranges_give_changesets_in_the_order_in_which_they_were_applied(store: Store) -> None:
    with store.transaction() as tx:
        tx.add_changesets([changeset(n, (n + 1) // 2, A if n % 2 else B) for n in range(1, 2001)])
    with store.reading() as reader:
        wanted = {A: (2, 900), B: (1, 1000), "C~00000003": (1, 5)}
        found = reader.ranges(wanted, limit=10_000, max_bytes=10**9)
        assert positions(found) == [n for n in range(2, 2001) if n % 2 == 0 or 3 <= n < 1800]
        assert positions(reader.ranges(wanted, limit=3, max_bytes=10**9)) == [2, 3, 4]
        assert found[0] == changeset(2, 1, B)
        assert reader.ranges({}, limit=10, max_bytes=10) == []


def test_ranges_have_as_many_octets_as_are_wanted_but_one_changeset_at_least(store: Store) -> None:
    with store.transaction() as tx:
        tx.add_changesets([changeset(n, body=bytes([n]) * 100) for n in range(1, 9)])
    with store.reading() as reader:
        assert positions(reader.ranges({A: (3, 8)}, limit=9, max_bytes=250)) == [3, 4]
        assert positions(reader.ranges({A: (3, 8)}, limit=9, max_bytes=300)) == [3, 4, 5]
        assert positions(reader.ranges({A: (3, 8)}, limit=9, max_bytes=1)) == [3]


def test_which_changesets_have_touched_a_row_can_be_noted(store: Store) -> None:
    one, other = row(1).id, row(2).id
    with store.transaction() as tx:
        tx.add_changesets(
            [changeset(n) for n in (1, 2, 3)], touched={1: [one], 2: [other], 3: [one, other, one]}
        )
        tx.add_changesets([changeset(4)])
    with store.reading() as reader:
        assert positions(reader.touching(one)) == [3, 1]
        assert positions(reader.touching(other, limit=1)) == [3]
        assert reader.touching(row(3).id) == []
    with store.transaction() as tx:
        tx.drop_changesets({A: 2})
        assert positions(tx.touching(one)) == [3]
        left = tx.connection.exec_driver_sql("SELECT position FROM stompkit_replica_touched")
        assert [position for (position,) in left] == [3, 3]


def test_changesets_that_are_dropped_raise_the_floor_and_their_positions_stay_taken(
    store: Store,
) -> None:
    with store.transaction() as tx:
        tx.add_changesets([changeset(1), changeset(2), changeset(3, 1, B)])
        tx.put_origins([OriginRecord(origin=A, sequence=2), OriginRecord(origin=B, sequence=1)])
        assert tx.floor() == {}
        assert tx.drop_changesets({A: 2, B: 1}) == 3
        assert tx.changesets() == []
        assert tx.floor() == {A: 2, B: 1}
        tx.drop_changesets({A: 1})
        assert tx.floor() == {A: 2, B: 1}
    with store.transaction() as tx:
        assert tx.last_position() == 3
        assert tx.vector() == {A: 2, B: 1}
        tx.add_changesets([changeset(4, 3)])


def test_the_last_changesets_of_an_origin_can_be_taken_back(store: Store) -> None:
    with store.transaction() as tx:
        tx.add_changesets([changeset(n) for n in (1, 2, 3)], touched={2: [row(1).id]})
        tx.add_changesets([changeset(4, 1, B)])
        tx.put_origins([OriginRecord(origin=A, sequence=3), OriginRecord(origin=B, sequence=1)])
        tx.remove_changesets(A, 1)
        tx.remove_changesets(B, 0)
        tx.put_origins([OriginRecord(origin=A, sequence=1)])
        tx.drop_origin(B)
    with store.transaction() as tx:
        assert tx.changesets() == [changeset(1)]
        assert tx.touching(row(1).id) == []
        assert tx.origins() == {A: OriginRecord(origin=A, sequence=1)}
        # The numbers are free again, and the positions are not.
        tx.add_changesets([changeset(5, 2)])


def test_changesets_without_bodies_can_still_be_listed(store: Store) -> None:
    with store.transaction() as tx:
        tx.add_changesets([changeset(1, comment="one"), changeset(2)])
        tx.put_origins([OriginRecord(origin=A, sequence=2)])
        assert tx.drop_bodies({A: 1}) == 1
        assert tx.drop_bodies({A: 1}) == 0
        assert tx.floor() == {A: 1}
    with store.reading() as reader:
        first, second = reader.changesets()
    assert (first.body, first.comment) == (None, "one")
    assert second == changeset(2)


def test_origins_are_replaced_by_what_they_are_now(store: Store) -> None:
    with store.transaction() as tx:
        tx.put_origins([OriginRecord(origin=A, sequence=3, clock={A: 3, B: 1}, floor=1)])
        tx.put_origins([OriginRecord(origin=B)])
        assert tx.vector() == {A: 3}
        tx.put_origins([OriginRecord(origin=A, sequence=2**40, clock={A: 2**40, B: 2}, floor=1)])
    with store.reading() as reader:
        assert reader.origins() == {
            A: OriginRecord(origin=A, sequence=2**40, clock={A: 2**40, B: 2}, floor=1),
            B: OriginRecord(origin=B),
        }
        assert reader.vector() == {A: 2**40}
        assert reader.floor() == {A: 1}


# Held changesets, and other nodes.


def test_changesets_are_held_until_they_are_let_go(store: Store) -> None:
    given = [
        held(2, received_at=1.5, via=A, signature=b"s"),
        held(4, problem="refused: no such column\0", is_quarantined=True),
        held(3, A, body=b"x" * 100_000),
    ]
    with store.transaction() as tx:
        assert (tx.held(), tx.held_size(), tx.held_numbers()) == ([], (0, 0), {})
        tx.hold(given)
    given[1].problem = "refused: no such column\N{REPLACEMENT CHARACTER}"
    with store.reading() as reader:
        assert reader.held() == [given[2], given[0], given[1]]
        assert reader.held(limit=1) == [given[2]]
        assert reader.held_of(B, 2) == given[0]
        assert reader.held_of(B, 1) is None
        assert reader.held_at([(A, 3), (B, 4), (B, 5)]) == {(A, 3): given[2], (B, 4): given[1]}
        assert reader.held_numbers() == {A: [3], B: [2, 4]}
        assert reader.held_size() == (3, 100_000 + 2 * len(given[0].body))
    with store.transaction() as tx:
        tx.hold([held(2, body=b"another")])
        assert tx.held_of(B, 2) == held(2, body=b"another")
        tx.unhold([(B, 2), (A, 3), (A, 99)])
        assert tx.held() == [given[1]]
        tx.unhold([])


def test_what_follows_on_the_last_changeset_of_its_origin_is_found(store: Store) -> None:
    with store.transaction() as tx:
        tx.hold([held(n) for n in (3, 4, 5)])
        tx.hold([held(1, A), held(2, A, is_quarantined=True)])
        assert tx.held_next({}) == [held(1, A)]
        assert tx.held_next({A: 1, B: 2}) == [held(3)]
        assert tx.held_next({A: 2, B: 4}) == [held(5)]


def test_peers_are_replaced_by_what_they_are_now(store: Store) -> None:
    first = PeerRecord(origin=B, vector={A: 1, B: 2}, counter=3, heard_at=4.5, ports=[0, 2])
    with store.transaction() as tx:
        tx.put_peer(PeerRecord(origin=A))
        tx.put_peer(first)
        assert tx.peers() == {A: PeerRecord(origin=A), B: first}
        second = PeerRecord(origin=B, counter=9, body=b"\0have", facts={"a": [1, None, "ä"]})
        tx.put_peers([second])
        tx.forget_peer(A)
        tx.forget_peer("C")
    with store.reading() as reader:
        assert reader.peers() == {B: second}


def test_settings_can_be_whatever_json_holds(store: Store) -> None:
    contents = [1, "ä\0", None, [1, {"a": 2.5}], {"heads": [], "hlc": 2**53}, "x" * 100_000]
    with store.transaction() as tx:
        for content in contents:
            tx.set_meta("name", content)
            assert tx.meta("name", "default") == content
    with store.reading() as reader:
        assert reader.meta("name") == contents[-1]
        assert reader.meta("other") is None
        assert reader.meta("other", 5) == 5


def test_sessions_are_given_in_the_order_of_their_beginning(store: Store) -> None:
    with store.transaction() as tx:
        assert tx.sessions() == []
        tx.add_session("z", 1)
        tx.add_session("a", 1)
    with store.transaction() as tx:
        tx.add_session("m", 30)
        assert tx.sessions() == [("z", 1), ("a", 1), ("m", 30)]
        assert tx.has_session("a")
        assert not tx.has_session("A")


def test_several_stores_can_be_in_one_database(engine: Engine) -> None:
    stores = [Store(engine), Store(engine, "other_")]
    for each in stores:
        each.create()
        each.create()
    try:
        with stores[1].transaction() as tx:
            tx.put_rows([row(1)])
            tx.add_changesets([changeset(1)])
        assert [each.last_position() for each in stores] == [0, 1]
        with stores[0].reading() as reader:
            assert (reader.row_page(limit=1), reader.changesets()) == ([], [])
    finally:
        stores[1].metadata.drop_all(engine)


def test_names_that_not_every_database_can_store_are_refused(store: Store) -> None:
    with store.transaction() as tx:
        tx.put_rows([row(1, "n" * LONGEST_NAME)])
        tx.put_origins([OriginRecord(origin="o" * LONGEST_ORIGIN)])
        for name in ("n" * (LONGEST_NAME + 1), "a\0b", ""):
            with pytest.raises(ValueError, match="the name of a table has 1 to 255 characters"):
                tx.put_rows([row(1, name)])
        origin = "o" * (LONGEST_ORIGIN + 1)
        said = "the name of an origin has 1 to 100 characters"
        with pytest.raises(ValueError, match=said):
            tx.put_origins([OriginRecord(origin=origin)])
        with pytest.raises(ValueError, match=said):
            tx.add_changesets([changeset(1, 1, origin)])
        with pytest.raises(ValueError, match=said):
            tx.hold([held(1, via=origin)])
        with pytest.raises(ValueError, match=said):
            tx.put_peer(PeerRecord(origin=origin))
        with pytest.raises(ValueError, match="begins with store"):
            tx.set_meta("store.x", 1)
