"""Replicas: databases that all accept writes, go offline, and converge.

Names are imported on first use: most need the extra ``replication``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompkit._common.lazy import imported

if TYPE_CHECKING:
    from stompkit.replica._channel import SettingsProblem
    from stompkit.replica._lease import LeaseLost, ReplicaInUse
    from stompkit.replica.applier import Refuse, WriteRefused
    from stompkit.replica.capture import ReadOnlyReplica
    from stompkit.replica.data.documents import DocumentProblem
    from stompkit.replica.history import RevisionProblem
    from stompkit.replica.nodes import IdentityProblem
    from stompkit.replica.replica import Replica
    from stompkit.replica.rules import (
        Candidate,
        RuleProblem,
        Rules,
        TableRules,
        counter,
        custom,
        first_writer,
        last_writer,
        members,
        origin_priority,
    )
    from stompkit.replica.runner import ReplicaStopped
    from stompkit.replica.settings import ReplicaSettings
    from stompkit.replica.signing import KeyProblem, generate_key
    from stompkit.replica.store import StoreBusy, StoreProblem, StoreUnavailable

__all__ = [
    "Candidate",
    "DocumentProblem",
    "IdentityProblem",
    "KeyProblem",
    "LeaseLost",
    "ReadOnlyReplica",
    "Refuse",
    "Replica",
    "ReplicaInUse",
    "ReplicaSettings",
    "ReplicaStopped",
    "RevisionProblem",
    "RuleProblem",
    "Rules",
    "SettingsProblem",
    "StoreBusy",
    "StoreProblem",
    "StoreUnavailable",
    "TableRules",
    "WriteRefused",
    "counter",
    "custom",
    "first_writer",
    "generate_key",
    "last_writer",
    "members",
    "origin_priority",
]

_MODULES = {
    "_lease": ("LeaseLost", "ReplicaInUse"),
    "_channel": ("SettingsProblem",),
    "applier": ("Refuse", "WriteRefused"),
    "capture": ("ReadOnlyReplica",),
    "data.documents": ("DocumentProblem",),
    "history": ("RevisionProblem",),
    "nodes": ("IdentityProblem",),
    "replica": ("Replica",),
    "rules": (
        "Candidate",
        "RuleProblem",
        "Rules",
        "TableRules",
        "counter",
        "custom",
        "first_writer",
        "last_writer",
        "members",
        "origin_priority",
    ),
    "runner": ("ReplicaStopped",),
    "settings": ("ReplicaSettings",),
    "signing": ("KeyProblem", "generate_key"),
    "store": ("StoreBusy", "StoreProblem", "StoreUnavailable"),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    return imported(__name__, _PLACES, name)
