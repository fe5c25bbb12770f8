"""Operations that tests can perform on a broker, derived from how it was launched."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

from stompkit.testing.capabilities.probe_context import Finding
from stompkit.testing.launching.brokers import LAUNCHERS
from stompkit.testing.launching.description import BrokerDescription
from stompkit.testing.launching.errors import BrokerError

__all__ = ["CONTROL"]

#: These keep persistent messages however they are launched.
_ALWAYS_PERSISTENT: Final = frozenset({"activemq", "artemis", "rabbitmq"})


def _process(broker: BrokerDescription) -> Finding:
    if broker.config is None:
        return Finding(False, f"somebody else runs {broker.name}, and its process is out of reach")
    return Finding(True, f"{broker.name} was launched for these tests")


def _pause(broker: BrokerDescription) -> Finding:
    if os.name != "posix":
        return Finding(False, f"processes cannot be paused on {sys.platform}")
    return _process(broker)


def _disk_full(broker: BrokerDescription) -> Finding:
    if sys.platform != "linux":
        return Finding(False, "only Linux can bound the files of a process that runs")
    return _process(broker)


def _persistence(broker: BrokerDescription) -> Finding:
    config = broker.config
    if config is None:
        return _process(broker)
    if broker.name in _ALWAYS_PERSISTENT:
        return Finding(True, f"{broker.name} keeps persistent messages however it is launched")
    if config.persistent:
        return Finding(True, f"{broker.name} was launched with persistent=True")
    return Finding(False, f"{broker.name} was launched without persistent=True")


def _control(broker: BrokerDescription) -> Finding:
    if broker.config is None or not broker.config.control:
        return Finding(False, f"{broker.name} was not launched with control=True (stompkit only)")
    return Finding(True, f"{broker.name} was launched with control=True")


def _frames(broker: BrokerDescription) -> Finding:
    try:
        _ = broker.frames
    except BrokerError as error:
        return Finding(False, str(error))
    return Finding(True, f"a proxy in front of {broker.name} records them")


def _quirks(broker: BrokerDescription) -> Finding:
    if broker.is_emulated:
        return Finding(True, f"stompkit plays {broker.name}")
    if broker.config is None or broker.config.quirks is None:
        return Finding(False, f"{broker.name} was not launched with quirks (stompkit only)")
    return Finding(True, f"{broker.name} was launched with the quirks {broker.config.quirks}")


def can_be_launched_with(name: str, broker: BrokerDescription) -> bool:
    """Return True if such a broker can be launched with the capability *name*."""
    if broker.config is None or name not in _FEATURES:
        return False
    launcher = LAUNCHERS.get(broker.name)
    # The features of a user's command are unknown.
    return launcher is None or _FEATURES[name] in launcher.features


#: Launcher feature that provides each capability which depends on the launch.
_FEATURES: Final = {
    "persistence": "persistent",
    "reset": "control",
    "clock": "control",
    "quirks": "quirks",
}
#: Function that returns the finding for each capability.
CONTROL: Final[dict[str, Callable[[BrokerDescription], Finding]]] = {
    "restart": _process,
    "kill": _process,
    "pause": _pause,
    "disk-full": _disk_full,
    "persistence": _persistence,
    "reset": _control,
    "clock": _control,
    "frames": _frames,
    "quirks": _quirks,
}
