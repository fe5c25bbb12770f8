"""The decorators ``@case`` and ``@trial``, which define cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, Final, TypeVar

import pytest

from stompkit.conformance.requirements import Level, catalogue
from stompkit.frames import VERSIONS, Version

__all__ = ["NEWEST", "Case", "Levels", "case", "cases_of", "trial", "trial_of"]

#: One level for all versions of a case, or one for some of them.
Levels = Level | Mapping[str, Level]
_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Placeholder for the newest version that the target supports.
NEWEST: Final = "newest"
#: Chapters whose cases affect the whole target and would disturb other cases.
_ALONE: Final = ("failover", "robustness")


@dataclass(frozen=True, slots=True)
class Case:
    """One test of one version of the protocol."""

    #: A stable name: the id of the first requirement that it covers, or that of the trial.
    id: str
    #: The version that it runs on, or ``NEWEST``.
    version: str
    #: Ids of all requirements that it covers.
    requirements: tuple[str, ...]
    level: Level
    #: True if the case only records the target's behaviour.
    informational: bool
    statement: str
    expectation: str
    section: str
    #: Ids of the requirements whose sentences the verdict FAILED rests on, of all versions that it
    #: may run on. Empty if the case names none: then its own level is all there is.
    rests_on: tuple[str, ...] = ()
    #: True if no other case may run at the same time.
    is_alone: bool = False

    @property
    def chapter(self) -> str:
        """The first part of the id."""
        return self.id.partition("/")[0]

    def sentence(self, version: str) -> str:
        """Return the words of that version's specification that FAILED rests on, if any."""
        sentences = [
            catalogue()[each].sentence
            for each in self.rests_on
            if each.partition("/")[0] == version
        ]
        # Two statements may rest on one sentence.
        return " ... ".join(dict.fromkeys(sentences))

    def can_fail(self, version: str) -> bool:
        """Return True if the case may be FAILED on that version."""
        if self.informational or self.level == "SHOULD":
            return False
        return not self.rests_on or bool(self.sentence(version))


def case(
    *ids: str, level: Levels | None = None, rests_on: Sequence[str] = ()
) -> Callable[[_Function], _Function]:
    """Make a test function a case for the given requirements.

    Each id begins with the version that it belongs to. The function runs once for each version
    among them; the first id of a version is the case's name there. ``level`` overrides the level of
    that first requirement, for all versions or by version; MAY makes a case that only records.
    FAILED rests on the sentence of the first requirement, or on those of ``rests_on``. The
    docstring describes the test and the expected result.

    Raises ``ValueError`` for an id that is not in the catalogue, without ids, and without a
    docstring.
    """
    if not ids:
        raise ValueError("a case names the requirements that it covers")

    def decorate(function: _Function) -> _Function:
        by_version: dict[str, list[str]] = {}
        _check(*ids, *rests_on)
        for requirement in ids:
            by_version.setdefault(requirement.partition("/")[0], []).append(requirement)
        expectation = _expectation(ids[0], function)
        return _parametrized(
            function,
            {
                version: _make(version, tuple(by_version[version]), level, rests_on, expectation)
                for version in VERSIONS
                if version in by_version
            },
        )

    return decorate


def trial(
    name: str,
    statement: str,
    *,
    level: Levels,
    section: str,
    versions: Sequence[Version] = (),
    covers: Sequence[str] = (),
    rests_on: Sequence[str] = (),
    alone: bool | None = None,
) -> Callable[[_Function], _Function]:
    """Make a test function a case for a statement that is not in the catalogue.

    ``name`` begins with the chapter, as in ``behaviour/ack/unknown``. With ``versions`` the
    function runs for each of them, as ``behaviour/1.2/ack/unknown``; without, once, on the newest
    version that the target supports. ``statement`` is the expectation on servers, ``section`` its
    source, ``level`` its strength, which may differ by version: MAY makes a case that only records.
    ``covers`` names requirements that are tested as well; each version gets its own. ``rests_on``
    names those whose sentences the verdict FAILED rests on, ``covers`` if left out. On a version of
    which it has none the case is NON-STRICT at the worst. ``alone`` prevents other cases from
    running at the same time; in the chapters failover and robustness this is the default.

    Raises ``ValueError`` for a requirement that is not in the catalogue, and without a docstring.
    """
    _check(*covers, *rests_on)

    def made(version: str, expectation: str) -> Case:
        return trial_of(
            name,
            statement,
            version,
            expectation,
            level=level,
            section=section,
            covers=covers,
            rests_on=rests_on,
            alone=alone,
        )

    def decorate(function: _Function) -> _Function:
        expectation = _expectation(name, function)
        return _parametrized(
            function, {version: made(version, expectation) for version in versions or (NEWEST,)}
        )

    return decorate


def trial_of(
    name: str,
    statement: str,
    version: str,
    expectation: str,
    *,
    level: Levels,
    section: str,
    covers: Sequence[str] = (),
    rests_on: Sequence[str] = (),
    alone: bool | None = None,
) -> Case:
    """Return the case of a trial on one version, or on ``NEWEST``; see :func:`trial`.

    Raises ``ValueError`` for a requirement that is not in the catalogue.
    """
    _check(*covers, *rests_on)
    chapter, _, rest = name.partition("/")
    is_for_all = version == NEWEST
    its_level = _level_of(level, version) or "FACT"
    return Case(
        id=name if is_for_all else f"{chapter}/{version}/{rest}",
        version=version,
        requirements=tuple(each for each in covers if is_for_all or each.startswith(version)),
        level=its_level,
        informational=its_level == "MAY",
        statement=statement,
        expectation=expectation,
        section=section,
        rests_on=tuple(
            each for each in rests_on or covers if is_for_all or each.startswith(version)
        ),
        is_alone=chapter in _ALONE if alone is None else alone,
    )


def _check(*requirements: str) -> None:
    for requirement in requirements:
        if requirement not in catalogue():
            raise ValueError(f"{requirement} is not in the catalogue of requirements")


def _level_of(level: Levels | None, version: str) -> Level | None:
    return level.get(version) if isinstance(level, Mapping) else level


def _expectation(name: str, function: Callable[..., Any]) -> str:
    expectation = cleandoc(function.__doc__ or "")
    if not expectation:
        raise ValueError(f"{name}: a case has a docstring that says what is expected")
    return expectation


def _parametrized(function: _Function, cases: dict[str, Case]) -> _Function:
    function.__dict__["stompkit_cases"] = cases
    mark = pytest.mark.parametrize("version", list(cases), scope="function")
    decorated: _Function = mark(function)
    return decorated


def _make(
    version: str,
    requirements: tuple[str, ...],
    level: Levels | None,
    rests_on: Sequence[str],
    expectation: str,
) -> Case:
    first = catalogue()[requirements[0]]
    its_level = _level_of(level, version)
    return Case(
        id=first.id,
        version=version,
        requirements=requirements,
        level=its_level or first.level,
        informational=first.kind == "info" or its_level == "MAY",
        statement=first.statement,
        expectation=expectation,
        section=first.section,
        rests_on=tuple(each for each in rests_on if each.startswith(version)) or (first.id,),
    )


def cases_of(function: object) -> dict[str, Case]:
    """Return the cases of a test function by version; empty for any other function."""
    cases: dict[str, Case] = getattr(function, "stompkit_cases", {})
    return cases
