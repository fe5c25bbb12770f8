"""Subscribers: receive changes in their process by signals, and forward them.

Each is imported on first use, because some need an additional library.
"""

from __future__ import annotations

from typing import Any

from stompkit._common.lazy import imported

__all__ = ["print_sub", "prometheus_sub", "statsd_sub", "stomp_sub", "zmq_proxy", "zmq_sub"]

_MODULES = {
    "print_sub": "printing",
    "prometheus_sub": "metrics",
    "statsd_sub": "metrics",
    "stomp_sub": "stomp",
    "zmq_proxy": "zmq",
    "zmq_sub": "zmq",
}


def __getattr__(name: str) -> Any:
    return imported(__name__, _MODULES, name)
