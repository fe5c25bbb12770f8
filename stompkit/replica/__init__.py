"""Replicas: databases that all accept writes, go offline, and converge.

Names are imported on first use: most need the extra ``replication``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompkit._common.lazy import imported
from stompkit._common.moved import moved, renamed

if TYPE_CHECKING:
    from stompkit.replica._channels.channel import ChannelSettingsError
    from stompkit.replica._running.lease import LeaseLostError, ReplicaInUseError
    from stompkit.replica.applier import RefuseChangesetError, WriteRefusedError
    from stompkit.replica.capture import ReadOnlyReplicaError
    from stompkit.replica.data.documents import DocumentError
    from stompkit.replica.history import RevisionError
    from stompkit.replica.nodes import IdentityError
    from stompkit.replica.replica import Replica
    from stompkit.replica.rules import (
        Candidate,
        RuleError,
        Rules,
        TableRules,
        counter,
        custom,
        first_writer,
        last_writer,
        members,
        origin_priority,
    )
    from stompkit.replica.runner import ReplicaStoppedError
    from stompkit.replica.settings import ReplicaSettings
    from stompkit.replica.signing import SigningKeyError, generate_key
    from stompkit.replica.store import ReplicaStoreError, StoreBusyError, StoreUnavailableError

__all__ = [
    "Candidate",
    "ChannelSettingsError",
    "DocumentError",
    "IdentityError",
    "LeaseLostError",
    "ReadOnlyReplicaError",
    "RefuseChangesetError",
    "Replica",
    "ReplicaInUseError",
    "ReplicaSettings",
    "ReplicaStoppedError",
    "ReplicaStoreError",
    "RevisionError",
    "RuleError",
    "Rules",
    "SigningKeyError",
    "StoreBusyError",
    "StoreUnavailableError",
    "TableRules",
    "WriteRefusedError",
    "counter",
    "custom",
    "first_writer",
    "generate_key",
    "last_writer",
    "members",
    "origin_priority",
]

_MODULES = {
    "_running.lease": ("LeaseLostError", "ReplicaInUseError"),
    "_channels.channel": ("ChannelSettingsError",),
    "applier": ("RefuseChangesetError", "WriteRefusedError"),
    "capture": ("ReadOnlyReplicaError",),
    "data.documents": ("DocumentError",),
    "history": ("RevisionError",),
    "nodes": ("IdentityError",),
    "replica": ("Replica",),
    "rules": (
        "Candidate",
        "RuleError",
        "Rules",
        "TableRules",
        "counter",
        "custom",
        "first_writer",
        "last_writer",
        "members",
        "origin_priority",
    ),
    "runner": ("ReplicaStoppedError",),
    "settings": ("ReplicaSettings",),
    "signing": ("SigningKeyError", "generate_key"),
    "store": ("StoreBusyError", "ReplicaStoreError", "StoreUnavailableError"),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    return imported(__name__, _PLACES, name)


renamed(
    __name__,
    DocumentProblem="DocumentError",
    IdentityProblem="IdentityError",
    KeyProblem="SigningKeyError",
    LeaseLost="LeaseLostError",
    ReadOnlyReplica="ReadOnlyReplicaError",
    Refuse="RefuseChangesetError",
    ReplicaInUse="ReplicaInUseError",
    ReplicaStopped="ReplicaStoppedError",
    RevisionProblem="RevisionError",
    RuleProblem="RuleError",
    SettingsProblem="ChannelSettingsError",
    StoreBusy="StoreBusyError",
    StoreProblem="ReplicaStoreError",
    StoreUnavailable="StoreUnavailableError",
    WriteRefused="WriteRefusedError",
)

moved(__name__, {"pictures": "stompkit.replica.diagrams"})
