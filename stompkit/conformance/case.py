"""How a case says what it tests: the ``@case`` decorator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, TypeVar

import pytest

from stompkit.conformance.requirements import Level, catalogue
from stompkit.frames import VERSIONS

__all__ = ["Case", "case", "cases_of"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to try on one version of the protocol."""

    #: A stable name: the id of the first requirement that it covers.
    id: str
    version: str
    #: Ids of all requirements that it covers.
    requirements: tuple[str, ...]
    level: Level
    #: Whether the case only records what the target does.
    informational: bool
    statement: str
    expectation: str
    section: str

    @property
    def chapter(self) -> str:
        """The first part of the id."""
        return self.id.partition("/")[0]


def case(*ids: str, level: Level | None = None) -> Callable[[_Function], _Function]:
    """Make a test function a case for the requirements named.

    Each id begins with the version that it belongs to; the function is run once for each version
    among them, and the first id of a version is the case's name there. ``level`` overrides the
    level of that first requirement; MAY makes a case that only records.  The docstring says what is
    done and what is expected.

    Raises ``ValueError`` for an id that the catalogue does not have, for no id, and for no
    docstring.
    """
    if not ids:
        raise ValueError("a case names the requirements that it covers")

    def decorate(function: _Function) -> _Function:
        by_version: dict[str, list[str]] = {}
        for requirement in ids:
            if requirement not in catalogue():
                raise ValueError(f"{requirement} is not in the catalogue of requirements")
            by_version.setdefault(requirement.partition("/")[0], []).append(requirement)
        expectation = cleandoc(function.__doc__ or "")
        if not expectation:
            raise ValueError(f"{ids[0]}: a case has a docstring that says what is expected")
        cases = {
            version: _make(version, tuple(by_version[version]), level, expectation)
            for version in VERSIONS
            if version in by_version
        }
        function.__dict__["stompkit_cases"] = cases
        mark = pytest.mark.parametrize("version", list(cases), scope="function")
        decorated: _Function = mark(function)
        return decorated

    return decorate


def _make(
    version: str, requirements: tuple[str, ...], level: Level | None, expectation: str
) -> Case:
    first = catalogue()[requirements[0]]
    return Case(
        id=first.id,
        version=version,
        requirements=requirements,
        level=level or first.level,
        informational=first.kind == "info" or level == "MAY",
        statement=first.statement,
        expectation=expectation,
        section=first.section,
    )


def cases_of(function: object) -> dict[str, Case]:
    """The cases that a test function stands for, by version; empty for any other function."""
    cases: dict[str, Case] = getattr(function, "stompkit_cases", {})
    return cases
