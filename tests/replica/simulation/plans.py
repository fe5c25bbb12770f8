"""The plan of a scenario, all of it chosen at random."""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random
from typing import Final

from tests.replica.simulation.topologies import TOPOLOGIES, Topology, topology

__all__ = ["KINDS", "Plan", "choose"]

#: Special features of scenarios, and their frequencies.
KINDS: Final = {
    "plain": 50,
    "late joiner": 12,
    "late joiner after compaction": 8,
    "one branch twice": 10,
    "clone": 10,
    "restored backup": 10,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A scenario; times are in seconds, and faults have probabilities."""

    kind: str
    shape: str
    ports: Topology
    branches: list[str]
    #: For each node the direction: both, send only or receive only.
    directions: list[str]
    #: The number of its broker for each channel.
    brokers: list[int]
    is_durable: bool
    acknowledges: bool
    #: Duration of the faults, and number of attempted transactions meanwhile.
    duration_s: float
    writes: int
    is_written_first: bool
    loss: float
    repeats: float
    late: float
    crash: float
    busy: float
    skew_s: float
    #: Numbers of cut connections, stopped processes, replaced brokers, and set clocks.
    cuts: int
    stops: int
    replacements: int
    jumps: int
    #: Limits that split messages, and the size of texts.
    window: int
    max_body_bytes: int
    hold_max: int
    weight: int

    def __str__(self) -> str:
        """Return the plan on one line."""
        return " ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self))


def choose(random: Random) -> Plan:
    """Choose a plan."""
    kind = random.choices(list(KINDS), list(KINDS.values()))[0]
    nodes = random.choices((2, 3, 4, 5), (5, 4, 2, 1))[0]
    shapes = [name for name, least in TOPOLOGIES.items() if least <= nodes]
    shape = random.choice(["bus", *shapes])
    ports = topology(shape, nodes, random)
    channels = 1 + max(channel for each in ports for channel in each)
    # Ids of different lengths, one of them numeric.
    branches = ["A", "B", "node-3", "44", "E.e"][:nodes]
    if kind == "one branch twice":
        branches[-1] = branches[0]
    is_small = random.random() < 0.4
    return Plan(
        kind=kind,
        shape=shape,
        ports=ports,
        branches=branches,
        directions=_directions(random, kind, ports),
        brokers=list(range(channels)) if random.random() < 0.5 else [0] * channels,
        is_durable=random.random() < 0.3,
        acknowledges=random.random() < 0.5,
        duration_s=random.uniform(2, 15),
        writes=random.choice((3, 8, 24)),
        is_written_first=random.random() < 0.4,
        loss=_often(random, 0.3),
        repeats=_often(random, 0.3),
        late=_often(random, 0.5),
        crash=_often(random, 0.06),
        busy=_often(random, 0.2),
        skew_s=random.choice((0.0, 0.5, 3600.0)),
        cuts=random.choice((0, 0, 1, 3)),
        stops=random.choice((0, 0, 1, 2)),
        replacements=random.choice((0, 0, 0, 1)),
        jumps=random.choice((0, 0, 2)),
        window=random.randint(1, 5) if is_small else 1000,
        max_body_bytes=random.choice((300, 1000)) if is_small else 256 * 1024,
        hold_max=random.choice((2, 10)) if is_small else 10_000,
        weight=random.choice((0, 0, 300)),
    )


def _often(random: Random, most: float) -> float:
    """Return the rate of a fault: 0 in half of all scenarios."""
    return round(random.uniform(0, most), 3) if random.random() < 0.5 else 0.0


def _directions(random: Random, kind: str, ports: Topology) -> list[str]:
    """Return the directions: some nodes with one port are one-way, if others write."""
    directions = ["both"] * len(ports)
    if kind == "plain" and len(ports) > 2 and len(ports[-1]) == 1 and random.random() < 0.2:
        directions[-1] = random.choice(("send", "receive"))
    return directions
