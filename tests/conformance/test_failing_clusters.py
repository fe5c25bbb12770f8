"""Clusters that break one rule: exactly the cases about it in the chapter failover detect it."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import pytest

from stompkit.conformance.address import Address
from stompkit.conformance.nodes import LaunchedNodes, Nodes
from stompkit.conformance.run.runner import Selection, cases_folder, run
from stompkit.conformance.target import probe
from stompkit.conformance.verdict import UnsupportedError
from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.conformance import failing_clusters
from tests.conformance.clusters import NAMES, NODES, SHARED, STORAGE, Cluster, NodeFault, verdicts
from tests.conformance.command import processes
from tests.conformance.proxy import faults_of
from tests.conformance.scripted import ScriptedServer, receipts

#: The folder of the chapter; the cases of other chapters are not read.
CHAPTER = cases_folder() / "failover"
FAULTS = faults_of(failing_clusters)
#: Cases that fail in this module.
FOUND_BY = (NAMES, *(each for fault in FAULTS.values() for each in fault.found_by))


class _Sound(NodeFault):
    """A cluster without faults."""

    found_by = ()


def findings(fault: type[NodeFault], broker: tuple[str, int]) -> set[str]:
    """Return the cases that are FAILED or NON-STRICT; run in a separate process."""
    with Cluster(fault, broker) as cluster:
        # Without the case about hanging nodes, which is slow, for faults that do not concern it.
        exclude = () if "hanging" in str(fault.found_by) or fault is _Sound else NODES[-1:]
        address = Address(*broker, timeout_s=2.0)
        selection = Selection((*NODES, *STORAGE, SHARED), exclude, folder=CHAPTER)
        found = verdicts(run(address, probe(address), selection, control=cluster))
    assert len(found) == len((*NODES, *STORAGE, SHARED)) - len(exclude)
    return {name for name, verdict in found.items() if verdict in ("FAILED", "NON-STRICT")}


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """Processes for the suite."""
    with processes(4) as made:
        yield made


@pytest.fixture(scope="module")
def found(
    pool: ProcessPoolExecutor, broker: RunningBroker
) -> Iterator[dict[str, Future[set[str]]]]:
    """The results for each cluster; the runs are concurrent."""
    faults = {**FAULTS, "sound": _Sound}
    yield {
        name: pool.submit(findings, fault, (broker.host, broker.port))
        for name, fault in faults.items()
        if issubclass(fault, NodeFault)
    }


@pytest.mark.parametrize("name", [*FAULTS, "sound"])
def test_broken_rule_is_found(name: str, found: dict[str, Future[set[str]]]) -> None:
    """All cases about the rule detect it, and no others."""
    expected = FAULTS[name].found_by if name in FAULTS else ()
    assert found[name].result() == set(expected)


class _StaleStore(LaunchedNodes):
    """The first node returns with the store that it had when it stopped."""

    def end(self, node: int) -> bool:
        first, second = self._pair.brokers
        assert first.directory is not None
        data, kept = first.directory / "data", first.directory / "kept"
        if node == 0:
            first.cut_off()
            shutil.copytree(data, kept)
            second.bring_back()
        else:
            second.cut_off()
            shutil.rmtree(data)
            kept.rename(data)
            first.bring_back()
        return True


def on_stale_store(broker: tuple[str, int]) -> dict[str, str]:
    """Return the verdicts with a stale store; the broker is that of all other cases."""
    address = Address(*broker, quiet_s=0.3)
    nodes = _StaleStore(LaunchConfig(persistent=True), address)
    try:
        selection = Selection(STORAGE, folder=CHAPTER)
        return verdicts(run(address, probe(address), selection, control=_Having(nodes)))
    finally:
        nodes.close()


class _Having:
    """A control of the target with these nodes."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def nodes(self) -> Nodes:
        return self._nodes

    def restart(self) -> None:
        raise UnsupportedError("not asked for")


def test_a_node_that_comes_back_with_a_stale_store_is_found(
    pool: ProcessPoolExecutor, broker: RunningBroker
) -> None:
    """With real brokers, the first one misses acknowledgements that the second one received."""
    found = pool.submit(on_stale_store, (broker.host, broker.port)).result()
    wrong = {name: verdict for name, verdict in found.items() if verdict != "OK"}
    assert wrong == {"failover/storage/old-node": "NON-STRICT"}


class _Deserted(Cluster):
    """A cluster in which no node takes over."""

    def end(self, node: int) -> bool:
        self._nodes[node].end()
        return True


def on_deserted_cluster(broker: tuple[str, int]) -> dict[str, Any]:
    """Return verdicts and details of cases on such a cluster."""
    with _Deserted(_Sound, broker, timeout_s=0.1) as cluster:
        address = Address(*broker)
        selection = Selection((NODES[2], STORAGE[0]), folder=CHAPTER)
        report = run(address, probe(address), selection, control=cluster)
    return {each.id: (str(each.verdict), each.detail) for each in report.results}


def test_a_node_that_nobody_takes_over_from_is_found(
    pool: ProcessPoolExecutor, broker: RunningBroker
) -> None:
    """The suite waits for the other node once, not in each case."""
    found = pool.submit(on_deserted_cluster, (broker.host, broker.port)).result()
    never = "no other node answers CONNECT in 2 s"
    assert found == {
        NODES[2]: ("NON-STRICT", never),
        STORAGE[0]: ("NON-STRICT", f"{never} (so it was before)"),
    }


# Names with several addresses.


def on_name(port: int, addresses: tuple[str, ...]) -> tuple[str, str, list[str]]:
    """Run the case with ``mq.test`` resolving to these addresses; in a separate process."""
    look_up = socket.getaddrinfo

    def known(host: Any, port: Any, *arguments: Any, **keywords: Any) -> list[Any]:
        hosts = addresses if host == "mq.test" else (host,)
        return [each for one in hosts for each in look_up(one, port, *arguments, **keywords)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", known)
        address = Address("mq.test", port, timeout_s=2.0)
        report = run(address, probe(address), Selection((NAMES,), folder=CHAPTER))
    (result,) = report.results
    return str(result.verdict), result.detail, result.notes


@pytest.mark.parametrize(
    ("addresses", "verdict", "told"),
    [
        (("127.0.0.1", "::1"), "NON-STRICT", "mq.test at ::1: the target does not take a conn"),
        (("127.0.0.1",), "UNSUPPORTED", "the name of the target has one address only"),
    ],
)
def test_each_address_of_a_name_has_to_answer(
    addresses: tuple[str, ...], verdict: str, told: str, pool: ProcessPoolExecutor
) -> None:
    with ScriptedServer(receipts) as server:
        found, detail, _ = pool.submit(on_name, server.port, addresses).result()
    assert found == verdict
    assert detail.startswith(told)


def test_a_name_may_stand_for_both_kinds_of_addresses(
    pool: ProcessPoolExecutor, broker: RunningBroker
) -> None:
    with launch(LaunchConfig(host="::1", port=broker.port)):
        found, _, notes = pool.submit(on_name, broker.port, ("127.0.0.1", "::1")).result()
    assert found == "OK"
    assert notes == ["mq.test answers at 127.0.0.1", "mq.test answers at ::1"]
