"""The release of a server to launch: the installed one, or one that was fetched."""

from __future__ import annotations

from dataclasses import dataclass

from stompkit.testing.launching.fetched import (
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
    """The version; empty if unknown."""
    fetched: Fetched | None = None
    """The entry in the cache folder; ``None``: it is installed on the system."""


def choose(server: str, wanted: str, installed: str | None) -> Release | None:
    """Return the release to launch; ``None`` if there is none.

    ``installed`` is the version on the system, or ``None``. It is used if no version is wanted.
    Otherwise the newest release of the wanted version is used.
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
    """Return the message that a version is missing, with the available ones and the remedy.

    ``fetch`` is the server's name in ``make servers``.
    """
    here = [f"{each.version} (fetched)" for each in fetched(server)]
    if installed:
        here.append(f"{installed} (installed)")
    found = f"only {', '.join(here)}" if here else "nor any other version"
    return f"no version {wanted} was found, {found}. To fetch one, {how_to_fetch(fetch)}"
