"""The metrics of a replica, as Prometheus' own parser reads them, and its health."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from stompkit.replica import Replica
from stompkit.replica.engine import PeerStatus, Status
from stompkit.replica.metrics import health, prometheus_replica

A, B, C = "anna~00000001", "bob~00000002", "cleo~00000003"


def peer(origin: str, behind: int = 0, behind_s: float = 0.0, ahead: int = 0) -> PeerStatus:
    return PeerStatus(
        origin=origin,
        vector={},
        behind=behind,
        behind_s=behind_s,
        ahead=ahead,
        heard_at=1.8e9,
        ports=[0],
        direction="both",
    )


WELL = Status(
    origin=A,
    branch="anna",
    trunk="0A",
    session="s",
    vector={A: 3, B: 4},
    heads=[],
    channels=[("notes", True)],
    peers=[],
    held=0,
    held_bytes=0,
    quarantined=[],
    skipped=[],
    conflicts=0,
    problems=[],
    digests={},
    diverged={},
    warnings=[],
    bootstrap="",
    counts={},
)


def but(**more: Any) -> Status:
    """Return the status of a healthy replica with these changes."""
    return msgspec.structs.replace(WELL, **more)


def values(status: Callable[[], Status], **more: Any) -> dict[str, float]:
    """Return all samples, by name and labels."""
    registry = CollectorRegistry()
    with closing(prometheus_replica(status, registry, **more)):
        text = generate_latest(registry).decode()
    return {
        " ".join([sample.name.removeprefix("stompkit_replica_"), *sample.labels.values()]): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# Health.


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (but(warnings=["two nodes are one"]), "two nodes are one"),
        (but(channels=[("notes", False)]), "there is no connection to the broker of channel notes"),
        (but(bootstrap="running"), "bootstrap: running"),
        (but(quarantined=[("bob~00000002:5", "x")]), "1 changeset in quarantine"),
        (but(problems=[("users", {"id": 1}, "x")] * 2), "2 rows refused by the tables or a rule"),
        (
            but(diverged={B: ["users", "orders"]}),
            f"{B} has the same changesets and other rows in users, orders",
        ),
    ],
)
def test_what_somebody_should_look_at_is_told(status: Status, told: str) -> None:
    assert health(WELL) == []
    assert health(status) == [told]


def test_conflicts_held_changesets_and_nodes_that_are_offline_are_no_faults() -> None:
    status = but(conflicts=5, held=3, peers=[peer(B, 1000, 1e6, 7)], skipped=[("x", "y")])
    assert health(status) == []


def test_a_lag_is_a_fault_where_somebody_says_so() -> None:
    status = but(peers=[peer(B, 2, 61.0), peer(C, 2, 59.0)])
    assert health(status, max_lag_s=60.0) == [f"{B} has lacked changesets for 61 s"]


def test_a_connection_may_be_another_process_s() -> None:
    assert health(but(channels=[("notes", False)]), needs_broker=False) == []


# Prometheus.


def test_the_figures_of_a_replica() -> None:
    status = but(
        peers=[peer(B, 3, 12.5), peer(C, ahead=2, behind_s=9.0)],
        held=4,
        held_bytes=5000,
        quarantined=[("x:1", "y"), ("x:2", "y")],
        conflicts=6,
        problems=[("users", {"id": 1}, "x")],
        diverged={B: ["users", "orders"], C: ["users"]},
        counts={"applied": 8, "sent": 9, "received": 10, "something else": 1},
    )
    found = values(lambda: status)
    wanted = {
        "up": 1,
        "healthy": 0,
        f"info anna {A} 0A": 1,
        "connected notes": 1,
        f"peer_lag_changesets {B}": 3,
        f"peer_lag_seconds {B}": 12.5,
        f"peer_lag_changesets {C}": 0,
        f"peer_lag_seconds {C}": 0,
        f"peer_ahead_changesets {C}": 2,
        "peers": 2,
        "held": 4,
        "held_bytes": 5000,
        "quarantined": 2,
        "skipped": 0,
        "conflicts": 6,
        "problems": 1,
        "divergence": 2,
        "changesets": 7,
        "applied_total": 8,
        "sent_total": 9,
        "received_total": 10,
        "duplicates_total": 0,
    }
    assert {name: found[name] for name in wanted} == wanted
    assert not [name for name in found if "else" in name]


def test_channels_of_one_name_have_one_value() -> None:
    channels = [("notes", True), ("notes", False), ('odd\n"name', True)]
    found = values(lambda: but(channels=channels))
    assert found["connected notes"] == 0
    assert found['connected odd\n"name'] == 1


def test_peers_are_bounded_and_of_the_rest_the_worst_is_told() -> None:
    peers = [peer(f"n{number}~00000001", number, number * 10.0) for number in range(5)]
    found = values(lambda: but(peers=peers), max_peers=2)
    assert {name: each for name, each in found.items() if name.startswith("peer_lag_c")} == {
        "peer_lag_changesets n0~00000001": 0,
        "peer_lag_changesets n1~00000001": 1,
        "peer_lag_changesets other": 4,
    }
    assert found["peer_lag_seconds other"] == 40
    assert found["peers"] == 5


def test_health_has_the_lag_that_is_said() -> None:
    status = but(peers=[peer(B, 1, 61.0)])
    assert values(lambda: status)["healthy"] == 1
    assert values(lambda: status, max_lag_s=60.0)["healthy"] == 0


def test_a_replica_whose_status_can_not_be_told_is_down(caplog: pytest.LogCaptureFixture) -> None:
    def status() -> Status:
        raise OSError("no connection to postgresql://me:s3cr3t@db/shop")

    with caplog.at_level(logging.WARNING):
        assert values(status) == {"up": 0}
    assert "OSError" in caplog.text
    assert "s3cr3t" not in caplog.text


def test_a_registry_has_the_metrics_of_one_replica_until_that_is_closed() -> None:
    registry = CollectorRegistry()
    first = prometheus_replica(lambda: WELL, registry)
    with pytest.raises(ValueError, match="stompkit_replica_up"):
        prometheus_replica(lambda: WELL, registry)
    first.close()
    assert generate_latest(registry) == b""
    prometheus_replica(lambda: WELL, registry).close()


def test_asking_for_the_names_asks_no_database() -> None:
    """The registry collects them on registration, when the database may be down."""

    def status() -> Status:
        raise AssertionError("nobody wants the values yet")

    prometheus_replica(status, CollectorRegistry()).close()


def test_the_number_of_peers_is_none_below_0() -> None:
    with pytest.raises(ValueError, match="max_peers"):
        prometheus_replica(lambda: WELL, CollectorRegistry(), max_peers=-1)


def test_a_real_replica_is_measured(tmp_path: Path) -> None:
    with closing(Replica(f"sqlite:///{tmp_path}/notes.db", branch_id="anna")) as replica:
        replica.create()
        replica.documents.put("notes", "milk", {"text": "Buy milk"})
        found = values(replica.status)
    assert found["up"] == found["healthy"] == found["changesets"] == 1
    assert found[f"info anna {replica.origin} 0A"] == 1
