"""A node that sends but does not answer is reported: some link works in one direction only."""

from __future__ import annotations

from typing import Final

import pytest

from stompkit.replication.model.frames import Packet
from tests.replica.simulation.checks import check
from tests.replica.simulation.databases import Databases
from tests.replica.simulation.deeds import put, status_of
from tests.replica.simulation.network import Broker
from tests.replica.simulation.stage import Stage
from tests.replica.simulation.world import World

DATABASES: Final = Databases()


@pytest.mark.parametrize("seed", range(3))
def test_a_bridge_that_carries_no_requests_is_told(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(World(seed), DATABASES)
    broker = stage.add_broker()
    early, late = (stage.add_node(branch, [(broker, "c")]) for branch in "AB")
    early.start()
    assert put(early, "notes", "n0", title="from before")
    stage.world.run(5.0)
    publish = Broker.publish

    def pass_on(broker: Broker, destination: str, packet: Packet) -> None:
        if destination == "/topic/c":
            publish(broker, destination, packet)

    with monkeypatch.context() as one_way:
        one_way.setattr(Broker, "publish", pass_on)
        late.start()
        stage.world.run(300.0)
        (warning,) = status_of(late).warnings
        assert "answered none of" in warning
        assert "stompkit bridge --channel" in warning
        assert status_of(early).warnings == []
    stage.settle()
    assert status_of(late).warnings == []
    check([early, late])
