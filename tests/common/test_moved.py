"""Old names of packages that have moved."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import stompkit.replication.replica.clock as old
    from stompkit.replication.replica import ReplicaSettings
    from stompkit.replication.replica.store import StoreProblem
import stompkit.replica.clock as new
import stompkit.replica.store
import stompkit.replica
print([(str(each.message), each.filename) for each in caught if "replica" in str(each.message)])
print(old is new, old.__name__, ReplicaSettings is stompkit.replica.ReplicaSettings)
print(StoreProblem is stompkit.replica.store.StoreProblem)
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
