"""Counts of changes: the received datagrams, and Prometheus' text as its own parser reads it."""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from stompkit.replication.model.events import RowChange, Source, make_changeset
from stompkit.replication.model.signals import emit
from stompkit.replication.sinks.forwarders import prometheus_sub, statsd_sub

WAIT_S = 10.0


def change(table: str, action: Any = "write", key: int = 1, schema: str = "") -> RowChange:
    return RowChange(table=table, action=action, key={"id": key}, schema=schema)


def send(*changes: RowChange, time: datetime | None = None) -> None:
    """Send the signals of one changeset."""
    emit(make_changeset("o", 1, changes, Source(kind="test", time=time)))


# statsd.


class Server:
    """A socket in place of statsd."""

    def __init__(self, family: socket.AddressFamily = socket.AF_INET) -> None:
        """Start to listen."""
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.settimeout(WAIT_S)
        host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
        self.socket.bind((host, 0))
        port = self.socket.getsockname()[1]
        self.url = f"statsd://[{host}]:{port}" if ":" in host else f"statsd://{host}:{port}"

    def counts(self, number: int) -> dict[str, int]:
        """Return the counts of this many names, from as many datagrams as needed."""
        found: Counter[str] = Counter()
        while len(found) < number:
            for line in self.socket.recv(65536).decode("ascii").splitlines():
                match = re.fullmatch(r"([^:|@\s]+):(\d+)\|c", line)
                assert match is not None, line
                found[match[1]] += int(match[2])
        return dict(found)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.socket.close()


def test_statsd_counts_changes_by_table_and_action(server: Server) -> None:
    with closing(statsd_sub(server.url, ["users", "orders"])):
        send(change("users"), change("users", key=2), change("orders", "delete"), change("users2"))
        assert server.counts(2) == {
            "stompkit.replication.users.write": 2,
            "stompkit.replication.orders.delete": 1,
        }


def test_statsd_names_have_no_characters_with_a_meaning(server: Server) -> None:
    with closing(statsd_sub(server.url, None, prefix="a b:c")):
        send(change("x:1|c\ny", schema="s"), change("é", "truncate"))
        assert server.counts(2) == {"a_b_c.s.x_1_c_y.write": 1, "a_b_c._.truncate": 1}


def test_statsd_tells_a_bounded_number_of_tables_apart(server: Server) -> None:
    with closing(statsd_sub(server.url, None, "p", max_tables=2)):
        send(*(change(f"t{n}") for n in range(5)))
        assert server.counts(3) == {"p.t0.write": 1, "p.t1.write": 1, "p.other.write": 3}


def test_statsd_many_names_take_several_datagrams(server: Server) -> None:
    with closing(statsd_sub(server.url, None, "p")):
        send(*(change(f"table{n:03}") for n in range(100)))
        assert server.counts(100) == {f"p.table{n:03}.write": 1 for n in range(100)}


def test_statsd_sends_the_rate_of_what_it_sends(server: Server) -> None:
    with closing(statsd_sub(server.url, ["a"], rate=0.5)):
        server.socket.settimeout(0.0)
        line = b""
        for _ in range(1000):
            send(change("a"))
            try:
                line = server.socket.recv(65536)
            except BlockingIOError:
                continue
            break
        assert line == b"stompkit.replication.a.write:1|c|@0.5"


def test_statsd_over_ipv6() -> None:
    try:
        server = Server(socket.AF_INET6)
    except OSError:
        pytest.skip("there is no IPv6 here")
    with closing(server.socket), closing(statsd_sub(server.url, ["a"], "p")):
        send(change("a"))
        assert server.counts(1) == {"p.a.write": 1}


def test_statsd_that_nobody_listens_to_is_no_problem(server: Server) -> None:
    server.socket.close()
    with closing(statsd_sub(server.url, ["a"])):
        for _ in range(3):
            send(change("a"))


def test_statsd_counts_nothing_after_close(server: Server) -> None:
    with closing(statsd_sub(server.url, ["a"], "p")):
        closed = statsd_sub(server.url, ["a"], "closed")
        closed.close()
        send(change("a"))
        assert server.counts(1) == {"p.a.write": 1}


@pytest.mark.parametrize("tables", ["users", 3])
def test_statsd_refuses_what_is_no_list(server: Server, tables: Any) -> None:
    with pytest.raises(ValueError, match="tables"):
        statsd_sub(server.url, tables)


@pytest.mark.parametrize("url", ["http://localhost", "statsd://", "statsd://h:x", "localhost/x"])
def test_statsd_refuses_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError, match=r"statsd://|Port|port"):
        statsd_sub(url, ["a"])


@pytest.mark.parametrize("rate", [0, -1, 1.5])
def test_statsd_refuses_a_rate_that_is_no_share(server: Server, rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        statsd_sub(server.url, ["a"], rate=rate)


# Prometheus.


def values(registry: CollectorRegistry) -> dict[str, float]:
    """Return all samples, by name and labels; without their creation times."""
    text = generate_latest(registry).decode()
    return {
        " ".join([sample.name.removeprefix("stompkit_replication_"), *_labels(sample.labels)]): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def _labels(labels: dict[str, str]) -> list[str]:
    return [labels[name] for name in ("table", "action", "le") if name in labels]


def test_prometheus_counts_changes_and_changesets() -> None:
    registry = CollectorRegistry()
    with closing(prometheus_sub(["users", "orders"], registry)):
        send(change("users"), change("users", key=2), change("orders", "delete"))
        send(change("users", "update"), change("users2"))
        send(change("users2"))
        found = values(registry)
    assert found["changes_total users write"] == 2
    assert found["changes_total users update"] == 1
    assert found["changes_total orders delete"] == 1
    assert not [name for name in found if "users2" in name]
    assert found["changesets_total"] == 2
    assert found["changeset_changes_count"] == 2
    assert found["changeset_changes_sum"] == 4
    assert found["changeset_changes_bucket 1.0"] == 1
    assert found["changeset_changes_bucket 3.0"] == 2


def test_prometheus_labels_are_bounded_and_can_hold_anything() -> None:
    registry = CollectorRegistry()
    with closing(prometheus_sub(None, registry, max_tables=2)):
        names = ['a"\n\\', "b", "c", "d", "b"]
        send(*(change(name) for name in names))
        found = values(registry)
    assert found['changes_total a"\n\\ write'] == 1
    assert found["changes_total b write"] == 2
    assert found["changes_total other write"] == 2


@pytest.mark.parametrize(
    ("time", "lag"),
    [
        (datetime(2026, 11, 21, 12, tzinfo=UTC), 5),
        (datetime(2026, 11, 21, 14, tzinfo=timezone(timedelta(hours=2))), 5),
        (datetime(2026, 11, 21, 12), 5),
        (datetime(2026, 11, 21, 13, tzinfo=UTC), 0),
    ],
)
def test_prometheus_lag_is_the_time_since_the_commit(time: datetime, lag: float) -> None:
    now = datetime(2026, 11, 21, 12, 0, 5, tzinfo=UTC).timestamp()
    registry = CollectorRegistry()
    with closing(prometheus_sub(["a"], registry, clock=lambda: now)):
        send(change("a"), time=time)
        assert values(registry)["lag_seconds"] == lag
        send(change("a"))
        assert values(registry)["lag_seconds"] == lag


def test_prometheus_lag_is_that_of_quiet_tables_too() -> None:
    commit = datetime(2026, 11, 21, tzinfo=UTC)
    registry = CollectorRegistry()
    with closing(prometheus_sub(["a"], registry, clock=lambda: commit.timestamp() + 7)):
        send(change("b"), time=commit)
        found = values(registry)
    assert found["lag_seconds"] == 7
    assert found["changesets_total"] == 0


def test_prometheus_leaves_the_registry_when_it_is_closed() -> None:
    registry = CollectorRegistry()
    first = prometheus_sub(["a"], registry)
    with pytest.raises(ValueError, match="stompkit_replication_changes"):
        prometheus_sub(["a"], registry)
    first.close()
    assert values(registry) == {}
    with closing(prometheus_sub(["a"], registry)):
        send(change("a"))
        assert values(registry)["changesets_total"] == 1


def test_prometheus_refuses_what_is_no_list() -> None:
    wrong: Any = "users"
    with pytest.raises(ValueError, match="tables"):
        prometheus_sub(wrong, CollectorRegistry())
