"""The decorator ``@client_case``, which defines cases about clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from types import ModuleType
from typing import Final

from stompkit.conformance.case import NEWEST, Case, trial_of
from stompkit.conformance.clients.client import Client
from stompkit.conformance.requirements import Level, catalogue
from stompkit.frames import Version

__all__ = ["CHAPTER", "NEW", "ClientCase", "client_case", "gather", "of"]

#: The first part of the id of every case about clients.
CHAPTER: Final = "client"
#: The versions with escapes, heart-beats, NACK and subscription ids.
NEW: Final[tuple[Version, ...]] = ("1.1", "1.2")

_Function = Callable[[Client], None]


@dataclass(frozen=True, slots=True)
class ClientCase:
    """One test of a client, with the part of the server that the suite plays."""

    case: Case
    play: _Function
    #: The oldest version that has the feature under test.
    since: Version = "1.0"
    #: Number of addresses that the client gets, and number of them, from the first on, that refuse
    #: connections.
    nodes: int = 1
    refusing: int = 0

    @property
    def id(self) -> str:
        """The id of the case."""
        return self.case.id


def client_case(
    name: str,
    statement: str,
    *,
    level: Level,
    section: str,
    versions: Sequence[Version] = (),
    since: Version = "1.0",
    covers: Sequence[str] = (),
    rests_on: Sequence[str] = (),
    nodes: int = 1,
    refusing: int = 0,
) -> Callable[[_Function], _Function]:
    """Make a function a case about clients; it gets the :class:`Client` and plays the server.

    With ``versions`` it runs for each of them, as ``client/1.2/ack/names-message`` if ``name`` is
    ``client/ack/names-message``; without, once, on the newest version that the client offers, which
    must be at least ``since``. ``covers`` names requirements of the catalogue for clients; each
    version gets its own. ``statement`` is the expectation on clients, ``section`` its source,
    ``level`` its strength: MAY makes a case that only records. ``rests_on`` names the statements
    whose sentences the verdict FAILED rests on, ``covers`` if left out; a liberty of servers may be
    among them. On a version without such a sentence the case is NON-STRICT at the worst. The
    docstring describes the test and the expected result.

    Raises ``ValueError`` for a requirement that is unknown, or covered but not for clients, and
    without a docstring.
    """
    for requirement in covers:
        if requirement in catalogue() and catalogue()[requirement].party == "server":
            raise ValueError(f"{requirement} is not for clients")
    if not name.startswith(f"{CHAPTER}/"):
        raise ValueError(f"{name} does not begin with {CHAPTER}/")

    def decorate(function: _Function) -> _Function:
        expectation = cleandoc(function.__doc__ or "")
        if not expectation:
            raise ValueError(f"{name}: a case has a docstring that says what is expected")
        function.__dict__["stompkit_client_cases"] = [
            ClientCase(
                trial_of(
                    name,
                    statement,
                    version,
                    expectation,
                    level=level,
                    section=section,
                    covers=covers,
                    rests_on=rests_on,
                ),
                function,
                since,
                nodes,
                refusing,
            )
            for version in versions or (NEWEST,)
        ]
        return function

    return decorate


def of(versions: Sequence[Version], *names: str) -> list[str]:
    """Return the ids of requirements that have the same name in several versions."""
    return [f"{version}/{name}" for version in versions for name in names]


def gather(modules: Iterable[ModuleType]) -> list[ClientCase]:
    """Return the cases of modules, in the order of their definition.

    Raises ``ValueError`` for a duplicate name.
    """
    found: dict[str, ClientCase] = {}
    for module in modules:
        for value in vars(module).values():
            cases: list[ClientCase] = getattr(value, "stompkit_client_cases", [])
            for case in cases:
                if case.id in found:
                    raise ValueError(f"there are two cases called {case.id}")
                found[case.id] = case
    return list(found.values())
