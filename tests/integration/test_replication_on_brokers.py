"""Replication over other brokers: tests of ``tests/replication/broker`` on them.

This file runs a part of them, one test or two for each guarantee: order, repeats, split and large
changesets, poison, a consumer that is killed, failover, partitions; and of replicas, in processes
that are killed, offline, late, or have another broker. All of them, by hand:

    pytest tests/replication/broker --mq-broker activemq
    pytest tests/replication/broker --mq-broker rabbitmq:4
    pytest tests/replication/broker --mq-quirk morbidq
    pytest tests/replication/broker --mq HOST:PORT

A broker that is not installed fails its test, as with ``--mq-missing fail``. The quick lane runs
the same tests on our broker, in ``tests/replication/broker``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

from stompkit.testing import LaunchConfig, launch
from tests.effort import in_matrix
from tests.testing.launched import require

pytestmark = pytest.mark.matrix

ROOT: Final = Path(__file__).resolve().parents[2]
TESTS: Final = Path("tests", "replication", "broker")
LONG_S: Final = 600.0

#: The guarantee, and its tests, by module and name.
CHOSEN: Final = {
    "order": [
        "test_end_to_end.py::test_what_a_publisher_publishes_is_applied_in_order",
        "test_crashes.py::test_frames_that_overtake_each_other_are_put_in_order",
    ],
    "repeats": [
        "test_end_to_end.py::test_what_is_published_twice_is_applied_once",
        "test_crashes.py::test_acknowledgements_that_are_lost_double_nothing",
        "test_crashes.py::test_receipts_that_are_lost_have_frames_sent_again_and_double_nothing",
    ],
    "split": ["test_end_to_end.py::test_split_changesets_are_applied_whole"],
    "large": ["test_end_to_end.py::test_a_changeset_of_megabytes_arrives"],
    "poison": [
        "test_troubles.py::test_what_can_not_be_applied_goes_to_the_dead_letters_alone",
        "test_troubles.py::test_a_split_changeset_goes_to_the_dead_letters_with_all_of_its_parts",
    ],
    "killed": [
        "test_crashes.py::test_a_consumer_that_is_killed_has_its_effect_once",
        "test_crashes.py::test_a_publisher_that_is_killed_publishes_again_and_doubles_nothing",
    ],
    "failover": [
        "test_end_to_end.py::test_the_first_host_may_be_dead",
        "test_crashes.py"
        "::test_who_goes_on_with_a_broker_on_the_same_store_loses_and_doubles_nothing",
    ],
    "partitions": [
        "test_partitions.py::test_partitions_are_applied_side_by_side_and_come_to_the_same",
    ],
    "replicas": [
        "test_replicas.py::test_processes_that_are_killed_at_any_time_lose_and_double_nothing",
        "test_replicas.py::test_what_was_edited_by_two_who_were_offline_is_merged",
        "test_replicas.py::test_a_node_that_joins_late_takes_a_snapshot_of_what_nobody_keeps",
        "test_replicas.py::test_a_changeset_that_is_refused_stops_nothing_else_and_can_be_skipped",
        "test_replicas.py::test_a_broker_that_is_killed_may_be_replaced_by_an_empty_one",
    ],
}

#: Tests that need a second broker on the first one's store.
ANOTHER: Final = {"test_who_goes_on_with_a_broker_on_the_same_store_loses_and_doubles_nothing"}
#: Tests that need two brokers, whatever their capabilities.
TWO: Final = {"test_a_broker_that_is_killed_may_be_replaced_by_an_empty_one"}
#: Tests that need redelivery, and so acknowledgements.
NOT_AGAIN: Final = {
    "test_acknowledgements_that_are_lost_double_nothing",
    "test_a_consumer_that_is_killed_has_its_effect_once[before the commit]",
    "test_a_consumer_that_is_killed_has_its_effect_once[behind the commit]",
    "test_a_consumer_that_is_killed_has_its_effect_once[behind the acknowledgement]",
    *ANOTHER,
}
#: Tests that need receipts.
NO_RECEIPT: Final = {
    "test_receipts_that_are_lost_have_frames_sent_again_and_double_nothing",
}


def skipped(directory: Path, *arguments: str) -> set[str]:
    """Run the chosen tests; all have to pass except skipped ones, whose names are returned."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("STOMPKIT_MQ")
    }
    path = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    report = directory / "report.xml"
    tests = [str(TESTS / test) for promise in CHOSEN.values() for test in promise]
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
            *(f"--junitxml={report}", *arguments, *tests),
        ],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": path, "STOMPKIT_MQ_MISSING": "fail"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG_S,
    )
    assert result.returncode == 0, result.stdout
    cases = list(ElementTree.parse(report).iter("testcase"))
    # A test with parameters appears once for each.
    ran = {case.attrib["name"].partition("[")[0] for case in cases}
    assert ran == {test.partition("::")[2] for test in tests}, result.stdout
    return {case.attrib["name"] for case in cases if case.find("skipped") is not None}


@pytest.mark.parametrize(
    "name",
    [
        "rabbitmq",
        in_matrix("rabbitmq:4"),
        in_matrix("activemq"),
        in_matrix("activemq:6"),
        in_matrix("artemis"),
    ],
)
def test_replication_keeps_all_promises_on(name: str, tmp_path: Path) -> None:
    assert skipped(tmp_path, "--mq-broker", require(name)) == set()


def test_replication_keeps_what_can_be_kept_on_a_broker_like_morbidq(tmp_path: Path) -> None:
    """The emulated broker forgets a sent message, and confirms nothing."""
    assert skipped(tmp_path, "--mq-quirk", "morbidq") == NOT_AGAIN | NO_RECEIPT


def test_replication_keeps_what_one_broker_can_keep_that_was_started_by_hand(
    tmp_path: Path,
) -> None:
    with launch(LaunchConfig()) as broker:
        assert skipped(tmp_path, "--mq", f"127.0.0.1:{broker.port}") == ANOTHER | TWO
