"""Targets of fuzzing: each is a module of this folder."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, cast

__all__ = ["CORPUS", "TARGETS", "Module", "Target", "corpus_files", "load"]

#: The stored inputs: a folder for each target.
CORPUS: Final = Path(__file__).with_name("corpus")


class Target(NamedTuple):
    """One target."""

    about: str
    #: Maximum length of an input, in bytes.
    most_octets: int
    #: Packages whose branches are counted.
    packages: tuple[str, ...] = ("stompkit",)


class Module(Protocol):
    """Interface of the module of a target."""

    #: Initial inputs, written by hand from the specifications.
    SEEDS: Sequence[bytes]

    def check(self, data: bytes, /) -> None:
        """Try one input; raises an exception if it finds a fault."""


TARGETS: Final[dict[str, Target]] = {
    "frames": Target(
        "the decoder of frames, in any chunks, and what it gives encoded again", 2_048
    ),
    "encoder": Target("the encoder of frames, and what it gives decoded again", 1_024),
    "selectors": Target("selectors: reading them, and asking them of headers", 1_024),
    "names": Target("names of destinations, patterns, the tree of patterns, dialects", 512),
    "stomp": Target("a broker as a whole, by scripts of several clients of STOMP", 4_096),
    "beanstalk": Target("a broker by scripts of several clients of beanstalkd", 4_096),
    "websocket": Target(
        "a broker by clients of STOMP over WebSocket", 4_096, ("stompkit", "wsproto", "h11")
    ),
    "proxied": Target("headers of the PROXY protocol before a connection of STOMP", 1_024),
    "admin": Target("the admin's HTTP: requests, queries and bodies in JSON", 2_048),
    "settings": Target("the broker's file of settings", 4_096, ("stompkit", "tomllib")),
    "exports": Target("the export of a store that is imported", 4_096),
    "spool": Target(
        "segments of a spool: reading them, and recovering what a crash has left", 4_096
    ),
    "changesets": Target("changesets of replication, and parts of them", 4_096),
    "replicas": Target("what replicas send each other, signed changesets too", 4_096),
}


def load(name: str) -> Module:
    """Return the module of a target."""
    return cast("Module", importlib.import_module(f"fuzz.{name}"))


def corpus_files(name: str) -> list[Path]:
    """Return the stored inputs of a target."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.is_file())
