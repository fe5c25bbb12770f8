"""Subscribers: they hear of changes in their process by signals, and pass them on.

Each is imported when it is asked for, since some need a library of their own.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

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
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
