"""Requests of another process of the node reach the engine through the store."""

from __future__ import annotations

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
