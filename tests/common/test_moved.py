"""Old names of packages that have moved."""

from __future__ import annotations

import subprocess
import sys

import pytest

import stompkit.client
import stompkit.replication.model.events
from stompkit.replication import eventstore

PROGRAM = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import stompkit.replication.replica.clock as old
    from stompkit.replication.replica import ReplicaSettings
    from stompkit.replication.replica.store import ReplicaStoreError
import stompkit.replica.clock as new
import stompkit.replica.store
import stompkit.replica
print([(str(each.message), each.filename) for each in caught if "replica" in str(each.message)])
print(old is new, old.__name__, ReplicaSettings is stompkit.replica.ReplicaSettings)
print(ReplicaStoreError is stompkit.replica.store.ReplicaStoreError)
"""
INNER = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import stompkit.replication.eventsourcing.subscriber as old
    from stompkit.replication import publishers
    from stompkit.replication.publishers.mysql import MysqlError
import stompkit.replication.eventstore.sink as new
from stompkit.replication import sources
from stompkit.replication.sources import mysql
print(*(str(each.message).partition(" now")[0] for each in caught), sep="\\n")
print(old is new, publishers is sources, MysqlError is mysql.MysqlError)
"""


def test_the_old_name_of_replicas_is_imported_with_a_warning() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    warning = "stompkit.replication.replica is stompkit.replica now; the old name goes with 2.0"
    assert done.stdout.splitlines() == [
        str([(warning, "<string>")]),
        "True stompkit.replica.clock True",
        "True",
    ]


def test_modules_of_a_moved_package_may_have_other_names() -> None:
    done = subprocess.run([sys.executable, "-c", INNER], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "stompkit.replication.eventsourcing is stompkit.replication.eventstore",
        "stompkit.replication.eventsourcing.subscriber is stompkit.replication.eventstore.sink",
        "stompkit.replication.publishers is stompkit.replication.sources",
        "True True True",
    ]


def test_a_moved_module_is_an_attribute_of_its_package() -> None:
    with pytest.warns(DeprecationWarning, match="replication.events is stompkit") as caught:
        old = stompkit.replication.events  # type: ignore[attr-defined]
    assert old is stompkit.replication.model.events
    assert [each.filename for each in caught] == [__file__]


def test_an_old_name_is_the_new_one_with_a_warning() -> None:
    with pytest.warns(
        DeprecationWarning, match="stompkit.client.ConnectFailed is ConnectFailedErr"
    ):
        old = stompkit.client.ConnectFailed  # type: ignore[attr-defined]
    assert old is stompkit.client.ConnectFailedError


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'stompkit\.client' has no attribute 'Nonsense'"):
        _ = stompkit.client.Nonsense  # type: ignore[attr-defined]


def test_a_lazy_package_has_its_old_names_too() -> None:
    with pytest.warns(DeprecationWarning, match="RecoveryProblem is RecoveryError"):
        old = eventstore.RecoveryProblem
    assert old is eventstore.RecoveryError
