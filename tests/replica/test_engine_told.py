"""Requests of another process of the node reach the engine through the store."""

from __future__ import annotations

import json

import pytest

from tests.replica.test_engine_hostile import Target

_HAVE = {"trunk": "0A", "counter": 7, "vector": {"Z~00000001": 3}, "sessions": [["s", 0]]}


def test_a_node_that_another_process_forgets_is_not_waited_for() -> None:
    target = Target()
    target.hear("have", _HAVE)
    assert [peer.origin for peer in target.engine.status().peers] == ["Z~00000001"]
    with target.store.transaction() as tx:
        tx.set_meta("forgotten", {"Z~00000001": 7})
        tx.forget_peer("Z~00000001")
    target.engine.wake()
    target.pass_time(5.0)
    assert target.engine.status().peers == []
    # Its later messages count again; its earlier ones do not.
    target.hear("have", _HAVE)
    assert target.engine.status().peers == []
    target.hear("have", _HAVE | {"counter": 8})
    assert [peer.origin for peer in target.engine.status().peers] == ["Z~00000001"]


def test_a_snapshot_that_another_process_asks_for_is_taken() -> None:
    target = Target()
    target.hear("have", _HAVE)
    with target.store.transaction() as tx:
        tx.set_meta("bootstrap", {"after": ""})
    target.engine.wake()
    target.sent.clear()
    target.pass_time(5.0)
    assert target.engine.status().bootstrap == "running"
    kinds = [packet.headers["stompkit-kind"] for each in target.sent for packet in each.packets]
    assert "page_want" in kinds


def selection(include: list[str], exclude: list[str]) -> str:
    return repr([sorted(include), sorted(exclude)])


@pytest.mark.parametrize(
    ("own", "theirs", "is_able"),
    [
        ("", "", True),
        (selection(["n"], []), "", True),
        (selection([], ["x"]), "", True),
        ("", selection([], ["x"]), False),
        ("", selection(["n"], []), False),
        (selection(["n"], []), selection(["m", "n"], []), True),
        (selection(["m", "n"], []), selection(["n"], []), False),
        (selection([], ["x", "y"]), selection([], ["x"]), True),
        (selection([], ["x"]), selection([], ["x", "y"]), False),
        (selection(["doc.n"], []), selection([], ["log"]), True),
        (selection(["doc.n"], []), selection([], ["n"]), False),
        (selection(["n"], []), selection([], ["l*"]), False),
        (selection(["n"], []), "of another version", False),
        (selection(["n"], []), "(" * 200, False),
        (selection(["n" * 300], []), selection(["n"], []), False),
    ],
)
def test_a_snapshot_is_asked_of_nodes_with_all_tables(
    own: str, theirs: str, *, is_able: bool
) -> None:
    target = Target(own)
    target.hear("have", _HAVE | {"selection": theirs})
    target.engine.bootstrap()
    target.pass_time(5.0)
    warnings = target.engine.status().warnings
    kinds = [packet.headers["stompkit-kind"] for each in target.sent for packet in each.packets]
    if is_able:
        assert "page_want" in kinds
        assert warnings == []
        return
    assert "page_want" not in kinds
    (warning,) = warnings
    assert "Z~00000001 leaves out some of the tables" in warning


def test_a_long_selection_of_tables_can_be_announced() -> None:
    """Announcements of more than 200 characters in one name are refused by others."""
    names = selection([f"table{number}" for number in range(100)], [])
    target = Target(names)
    target.hear("have", _HAVE | {"ask": True})
    said = {
        json.loads(packet.body.splitlines()[0]).get("selection", "")
        for each in target.sent
        for packet in each.packets
        if packet.headers["stompkit-kind"] == "have"
    } - {""}
    assert {len(each) <= 200 for each in said} == {True}
    target.hear("have", _HAVE | {"counter": 9, "selection": said.pop()})
    target.engine.bootstrap()
    assert not any("leaves out" in each for each in target.engine.status().warnings)
