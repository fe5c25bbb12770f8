"""How a case about clients says what it tests: the decorator ``@client_case``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from types import ModuleType
from typing import Final

from stompkit.conformance.case import NEWEST, Case
from stompkit.conformance.clients.client import Client
from stompkit.conformance.requirements import Level, catalogue
from stompkit.frames import Version

__all__ = ["CHAPTER", "NEW", "ClientCase", "client_case", "gather", "of"]

#: The first part of the id of every case about clients.
CHAPTER: Final = "client"
#: The versions that have escapes, heart-beats, NACK and ids of subscriptions.
NEW: Final[tuple[Version, ...]] = ("1.1", "1.2")

_Function = Callable[[Client], None]


@dataclass(frozen=True, slots=True)
class ClientCase:
    """One thing to try on a client, and the part that the suite plays in it."""

    case: Case
    play: _Function
    #: The oldest version that has what it is about.
    since: Version = "1.0"
    #: How many addresses the client is given, and how many of them, from the first on, refuse
    #: connections.
    nodes: int = 1
    refusing: int = 0

    @property
    def id(self) -> str:
        """Its name."""
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
    nodes: int = 1,
    refusing: int = 0,
) -> Callable[[_Function], _Function]:
    """Make a function a case about clients; it is given the :class:`Client` and plays the server.

    With ``versions`` it is run for each of them, as ``client/1.2/ack/names-message`` where ``name``
    is ``client/ack/names-message``; without, once, on the newest version that the client offers,
    ``since`` being the oldest that will do. ``covers`` names requirements of the catalogue that
    clients have to meet; where there are versions, each gets its own. ``statement`` says what is
    held of clients, ``section`` where that comes from, ``level`` how binding it is: MAY makes a
    case that only records. The docstring says what is done and expected.

    Raises ``ValueError`` for a requirement that there is not or that is not for clients, and for
    no docstring.
    """
    for requirement in covers:
        if requirement not in catalogue():
            raise ValueError(f"{requirement} is not in the catalogue of requirements")
        if catalogue()[requirement].party == "server":
            raise ValueError(f"{requirement} is not for clients")
    rest = name.removeprefix(f"{CHAPTER}/")
    if rest == name:
        raise ValueError(f"{name} does not begin with {CHAPTER}/")

    def decorate(function: _Function) -> _Function:
        expectation = cleandoc(function.__doc__ or "")
        if not expectation:
            raise ValueError(f"{name}: a case has a docstring that says what is expected")
        function.__dict__["stompkit_client_cases"] = [
            ClientCase(
                Case(
                    id=name if version == NEWEST else f"{CHAPTER}/{version}/{rest}",
                    version=version,
                    requirements=tuple(
                        each for each in covers if version == NEWEST or each.startswith(version)
                    ),
                    level=level,
                    informational=level == "MAY",
                    statement=statement,
                    expectation=expectation,
                    section=section,
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
    """Ids of requirements that versions have under one name each."""
    return [f"{version}/{name}" for version in versions for name in names]


def gather(modules: Iterable[ModuleType]) -> list[ClientCase]:
    """The cases of modules, in the order in which they are written.

    Raises ``ValueError`` where two have one name.
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
