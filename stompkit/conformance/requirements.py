"""The catalogue of all statements of the three specifications, with ids that never change."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from stompkit.frames import VERSIONS

__all__ = ["Level", "Requirement", "catalogue", "statements"]

#: Strength of a statement. FACT is one without a key word in the specification.
Level = Literal["MUST", "FACT", "SHOULD", "MAY"]


class Requirement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One normative statement, paraphrased, with the sentence that makes it."""

    id: str
    version: str
    section: str
    level: Level
    keyword: str
    party: Literal["client", "server", "both"]
    line: str
    statement: str
    #: The words of the specification, without its markup; ``...`` stands for what is left out.
    #: Empty where no case can observe anything.
    sentence: str = ""
    observable_by_client: bool
    how: str
    #: ``check``: has a verdict; ``info``: is only recorded; ``ref``: another one covers it;
    #: ``none``: not observable by a client.
    kind: Literal["check", "info", "ref", "none"]


@cache
def catalogue() -> Mapping[str, Requirement]:
    """Return all requirements by id, in the order of the specifications."""
    data = files("stompkit.conformance").joinpath("requirements.json").read_bytes()
    return {entry.id: entry for entry in msgspec.json.decode(data, type=list[Requirement])}


def statements(*names: str) -> tuple[str, ...]:
    """Return the ids of these statements in all versions that make them.

    A name is an id without the version, such as ``send/delivers``. Raises ``ValueError`` for one
    that no version has.
    """
    found: list[str] = []
    for name in names:
        ids = [f"{version}/{name}" for version in VERSIONS]
        there = [each for each in ids if each in catalogue()]
        if not there:
            raise ValueError(f"{name} is not in the catalogue of requirements")
        found += there
    return tuple(found)
