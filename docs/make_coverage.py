"""Writes which case tests which statement, ``conformance-coverage.rst``, from the cases themselves.

Run it after a change of the cases of the conformance suite, or of its catalogue of requirements;
``--check`` changes nothing, and exits with 1 where the file differs from them.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, get_args

from docs.generated import write_pages
from stompkit.conformance.case import Case
from stompkit.conformance.clients.cases import all_cases as cases_about_clients
from stompkit.conformance.requirements import Level, Requirement, catalogue
from stompkit.conformance.run.runner import Selection
from stompkit.conformance.run.runner import all_cases as cases_about_servers
from stompkit.frames import VERSIONS

__all__ = ["main"]

_NAME: Final = "conformance-coverage.rst"
_WIDTH: Final = 100
_INTRODUCTION: Final = """\
.. Made by docs/make_coverage.py from the cases and the catalogue: change those instead.

Conformance coverage
====================

Every statement that the three specifications of STOMP make, in our words and, in quotation marks,
in theirs, with the cases that test it, or the reason why none does. Cases whose names begin with
``client/`` test clients, all others test servers; ``docs/howto/conformance.rst`` explains both.
Levels are those of the specification's words; FACT is a statement without such a word.

The quotations are from the `STOMP specifications <https://stomp.github.io>`__, which are licensed
under Creative Commons Attribution, 1.0 and 1.1 in version 2.5 and 1.2 in version 3.0. They are
without markup, and ``...`` stands for words that are left out.
"""
_ABOUT_THE_TABLE: Final = """\
A statement for both sides is often tested on both, and so is in two columns. *With another* are
statements that say again what another one says, and *nothing to test* are those that leave the
choice, introduce something, or ask for what nobody can see from outside.
"""
_COLUMNS: Final = (
    *("Version", "Level", "Statements", "Tested on servers", "Tested on clients"),
    *("With another", "Nothing to test", "Without a case"),
)
#: The catalogue's marks of statements without a test, and their texts here.
_REASONS: Final = {
    "Nothing to assert": "Nothing to test",
    "Client duty": "A duty of clients that no case can ask for",
    "Client permission": "A permission of clients, from which nothing follows",
    "Permission": "A permission",
    "INFO:": "A permission, from which nothing follows; for example",
    "Introductory": "Introduces something, and asks for nothing",
    "Informative": "Informs, and asks for nothing",
}
_SPECIAL: Final = re.compile(r"([\\`*|_])")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file, or check it; return the exit status."""
    return write_pages("make_coverage.py", __doc__, _pages, arguments)


def _pages() -> dict[str, str]:
    return {_NAME: page(list(catalogue().values()), all_cases())}


def all_cases() -> list[Case]:
    """Return all cases."""
    about_clients = [each.case for each in cases_about_clients()]
    return [*cases_about_servers(Selection()), *about_clients]


def page(requirements: Sequence[Requirement], cases: Iterable[Case]) -> str:
    """Return the page of the manual."""
    covering: dict[str, list[Case]] = {}
    for case in cases:
        for requirement in case.requirements:
            covering.setdefault(requirement, []).append(case)
    lines = [_INTRODUCTION, *_summary(requirements, covering), _ABOUT_THE_TABLE]
    for version, of_version in groupby(requirements, key=lambda each: each.version):
        lines.append(_title(f"STOMP {version}", "-"))
        sections: dict[str, list[Requirement]] = {}
        for each in of_version:
            sections.setdefault(each.section, []).append(each)
        for section, inside in sections.items():
            lines += _section(section, inside, covering)
    return "\n".join(lines).rstrip("\n") + "\n"


def _title(text: str, line: str) -> str:
    escaped = _escaped(text)
    return f"{escaped}\n{line * len(escaped)}\n"


def _summary(requirements: Sequence[Requirement], covering: dict[str, list[Case]]) -> Iterator[str]:
    """Yield a table with the number of statements of each level, and of their coverage."""
    yield ".. csv-table::"
    yield f"   :header: {', '.join(_COLUMNS)}\n"
    for version in (*VERSIONS, None):
        for level in (*get_args(Level), None):
            chosen = [
                each
                for each in requirements
                if version in (each.version, None) and level in (each.level, None)
            ]
            if version is not None or level is None:
                counts = _counts(chosen, covering)
                yield "   " + ", ".join([version or "all", level or "all", *map(str, counts)])
    yield ""


def _counts(
    requirements: Sequence[Requirement], covering: dict[str, list[Case]]
) -> tuple[int, int, int, int, int, int]:
    """Return the numbers: all, on servers, on clients, with another, not testable, uncovered."""
    chapters = [{case.chapter for case in covering.get(each.id, [])} for each in requirements]
    without = [each.kind for each in requirements if each.id not in covering]
    return (
        len(requirements),
        sum(bool(some - {"client"}) for some in chapters),
        sum("client" in some for some in chapters),
        without.count("ref"),
        without.count("none"),
        without.count("check") + without.count("info"),
    )


def _section(
    name: str, requirements: Sequence[Requirement], covering: dict[str, list[Case]]
) -> Iterator[str]:
    """Return the statements of a section of the specification."""
    yield _title(name, "~")
    for each in requirements:
        yield f"``{each.id}`` ({each.level})"
        yield _filled(_escaped(each.statement)) + "\n"
        if each.sentence:
            yield _filled(f'"{_escaped(each.sentence)}"') + "\n"
        cases = covering.get(each.id, [])
        if cases:
            text = "Tested by " + ", ".join(f"``{case.id}``" for case in cases) + "."
        else:
            text = _escaped(_reason(each))
        yield _filled(text) + "\n"


def _reason(requirement: Requirement) -> str:
    """Return the reason why no case tests a statement."""
    if requirement.kind == "ref":
        return f"Tested with another: {requirement.how}"
    if requirement.kind != "none":
        return "There is no case yet."
    for words, reason in _REASONS.items():
        if requirement.how.startswith(words):
            return reason + requirement.how.removeprefix(words)
    return requirement.how


def _escaped(text: str) -> str:
    """Return a text with all markup of docutils escaped."""
    return _SPECIAL.sub(r"\\\1", text)


def _filled(text: str) -> str:
    """Return a paragraph of a definition."""
    return textwrap.fill(
        " ".join(text.split()),
        _WIDTH,
        initial_indent="    ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    sys.exit(main())
