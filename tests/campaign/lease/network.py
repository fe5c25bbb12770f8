"""Hosts in network namespaces, and the two networks between them.

The clients reach the brokers by the front network, and the brokers reach the databases by the back
network. Each network is a bridge in the namespace of the clients. Everything is in the namespaces
of the current process, and vanishes with it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["BACK", "FRONT", "NETNS", "Network"]

FRONT: Final = "front"
BACK: Final = "back"
_ADDRESSES: Final = {FRONT: "10.77.1", BACK: "10.77.2"}
#: The folder of ``ip netns``, covered by an empty one.
NETNS: Final = Path("/run/netns")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


class Network:
    """Both networks, with their hosts."""

    def __init__(self) -> None:
        """Create the networks; the current namespace is the host of the clients."""
        NETNS.mkdir(exist_ok=True)
        _run("mount", "-t", "tmpfs", "tmpfs", str(NETNS))
        _run("ip", "link", "set", "lo", "up")
        for name, prefix in _ADDRESSES.items():
            _run("ip", "link", "add", name, "type", "bridge")
            _run("ip", "link", "set", name, "up")
            if name == FRONT:
                _run("ip", "address", "add", f"{prefix}.1/24", "dev", name)
        self._numbers: dict[str, int] = {}

    def add(self, host: str, networks: Iterable[str]) -> None:
        """Create a host that is connected to some of the networks."""
        number = self._numbers[host] = 10 + len(self._numbers)
        _run("ip", "netns", "add", host)
        _run("ip", "-n", host, "link", "set", "lo", "up")
        for name in networks:
            # The two ends of a cable: in the bridge and in the host.
            end = ("peer", "name", name, "netns", host)
            _run("ip", "link", "add", self._port(host, name), "type", "veth", *end)
            address = f"{_ADDRESSES[name]}.{number}/24"
            _run("ip", "-n", host, "address", "add", address, "dev", name)
            _run("ip", "-n", host, "link", "set", name, "up")
            self.connect(host, name)

    def address(self, host: str, network: str) -> str:
        """Return the address of a host."""
        return f"{_ADDRESSES[network]}.{self._numbers[host]}"

    def inside(self, host: str) -> list[str]:
        """Return the beginning of a command that runs on a host."""
        return ["ip", "netns", "exec", host]

    def cut(self, host: str, network: str, *, is_silent: bool) -> None:
        """Disconnect a host: pull its cable, or drop all its packets if ``is_silent``."""
        how = ("nomaster",) if is_silent else ("down",)
        _run("ip", "link", "set", self._port(host, network), *how)

    def connect(self, host: str, network: str) -> None:
        """Connect a host, for the first time or again."""
        _run("ip", "link", "set", self._port(host, network), "master", network, "up")

    def _port(self, host: str, network: str) -> str:
        return f"{network}-{host}"
