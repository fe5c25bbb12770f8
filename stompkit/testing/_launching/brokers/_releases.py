"""Which release of a server to launch: the installed one, or one that was fetched."""

from __future__ import annotations

from dataclasses import dataclass

from stompkit.testing._launching.fetched import (
    Fetched,
    fetched,
    how_to_fetch,
    is_of_version,
    version_key,
)

__all__ = ["Release", "choose", "explain_missing"]


@dataclass(frozen=True)
class Release:
    """A release of a server on this machine."""

    version: str
    """Its version; empty where nothing tells."""
    fetched: Fetched | None = None
    """Where it is in the cache folder; ``None``: it is installed on the system."""


def choose(server: str, wanted: str, installed: str | None) -> Release | None:
    """The release to launch; ``None`` where there is no such one.

    ``installed`` is the version on the system, ``None`` where there is none. It is taken where no
    version is wanted. Else the newest release of the wanted version is taken.
    """
    releases = [Release(each.version, each) for each in fetched(server)]
    if installed is not None:
        system = Release(installed)
        if not wanted:
            return system
        releases.append(system)
    matching = [each for each in releases if is_of_version(each.version, wanted)]
    return max(matching, key=lambda each: version_key(each.version), default=None)


def explain_missing(server: str, wanted: str, installed: str | None, fetch: str) -> str:
    """Say that a version is not here, which ones are, and how to get others.

    ``fetch`` is what ``make servers`` calls the server.
    """
    here = [f"{each.version} (fetched)" for each in fetched(server)]
    if installed:
        here.append(f"{installed} (installed)")
    found = f"only {', '.join(here)}" if here else "nor any other version"
    return f"no version {wanted} was found, {found}. To fetch one, {how_to_fetch(fetch)}"
