"""The old name of ``stompkit.replica``."""

from __future__ import annotations

from stompkit._common.moved import moved

moved("stompkit.replication.replica", "stompkit.replica")
