"""A mutant, and its place in a tree whose lines have moved."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["SET", "Mutant", "MutantSet", "Place", "locate", "neighbours", "occurrences"]

#: The committed set.
SET: Final = Path(__file__).with_name("mutants.json")


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """One small fault: some whole lines of a function, and their replacement."""

    id: int
    #: The part of the product for which it was drawn.
    part: str
    file: str
    #: The function or class, as in ``Queue.configure``; empty for the module.
    scope: str
    #: The line at the time of the draw; for readers only.
    line: int
    operator: str
    before: str
    after: str
    #: The number of the occurrence of ``before`` in the scope, from 0, and the number of
    #: occurrences.
    nth: int
    of: int
    #: The nearest non-blank lines on either side, without indentation.
    above: str
    below: str


class MutantSet(msgspec.Struct, frozen=True, kw_only=True):
    """Mutants and their origin."""

    seed: int
    commit: str
    mutants: tuple[Mutant, ...]

    @classmethod
    def read(cls, path: Path = SET) -> MutantSet:
        """Read a file that :meth:`write` has written."""
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def write(self, path: Path) -> None:
        """Write them in the form that is kept."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a mutant in a tree: a file, its first line from 0, and the changed text."""

    file: str
    first: int
    count: int
    text: str


def locate(mutant: Mutant, sources: Mapping[str, str]) -> Place | None:
    """Return the place of *mutant* in *sources*, texts by file; None if its text is missing.

    A different common indentation of the lines is ignored. If the function was moved to another
    file, then all files are searched, and exactly one may contain it.
    """
    own = sources.get(mutant.file)
    if own is not None and (found := _in_text(mutant, mutant.file, own)):
        return found
    others = (
        _in_text(mutant, file, text)
        for file, text in sources.items()
        if file != mutant.file and mutant.before.split("\n")[0].strip() in text
    )
    places = [place for place in others if place]
    return places[0] if len(places) == 1 else None


def occurrences(mutant: Mutant, text: str) -> list[int]:
    """Return the lines, from 0, at which ``before`` occurs in the scope of a mutant."""
    lines = text.split("\n")
    wanted = mutant.before.split("\n")
    return sorted(
        {
            first
            for name, span in scopes(text)
            if name == mutant.scope
            for first in range(span.start, span.stop - len(wanted) + 1)
            if _is_here(wanted, lines[first : first + len(wanted)])
        }
    )


def _in_text(mutant: Mutant, file: str, text: str) -> Place | None:
    lines = text.split("\n")
    before, after = mutant.before.split("\n"), mutant.after.split("\n")
    first = _chosen(mutant, lines, occurrences(mutant, text), len(before))
    if first is None:
        return None
    if shift := _indent(lines[first]) - _indent(before[0]):
        after = [" " * (_indent(line) + shift) + line.strip() for line in after]
    lines[first : first + len(before)] = after
    return Place(file=file, first=first, count=len(before), text="\n".join(lines))


def _chosen(mutant: Mutant, lines: list[str], firsts: list[int], count: int) -> int | None:
    """Return one of several occurrences: by number, or by neighbours if there are more or fewer."""
    if firsts and len(firsts) == mutant.of:
        return firsts[mutant.nth]
    wanted = (mutant.above, mutant.below)
    alike = [
        (sum(a == b for a, b in zip(neighbours(lines, first, count), wanted, strict=True)), first)
        for first in firsts
    ]
    alike.sort(reverse=True)
    if not alike or not alike[0][0] or (len(alike) > 1 and alike[0][0] == alike[1][0]):
        return None
    return alike[0][1]


def neighbours(lines: Sequence[str], first: int, count: int) -> tuple[str, str]:
    """Return the nearest non-blank lines above and below, without indentation."""
    above = next((line.strip() for line in reversed(lines[:first]) if line.strip()), "")
    below = next((line.strip() for line in lines[first + count :] if line.strip()), "")
    return above, below


def _is_here(wanted: Sequence[str], lines: Sequence[str]) -> bool:
    """Return True if lines equal the wanted ones, except for a common indentation."""
    shift = _indent(lines[0]) - _indent(wanted[0])
    return all(
        line.strip() == want.strip()
        and (not want.strip() or _indent(line) - _indent(want) == shift)
        for want, line in zip(wanted, lines, strict=True)
    )


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def scopes(text: str) -> Iterator[tuple[str, range]]:
    """Yield the functions and classes of a module with their lines from 0, the module first."""
    yield "", range(len(text.split("\n")))
    yield from _inner(ast.parse(text), "")


def _inner(node: ast.AST, outer: str) -> Iterator[tuple[str, range]]:
    for child in ast.iter_child_nodes(node):
        name = outer
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{outer}.{child.name}" if outer else child.name
            yield name, range(child.lineno - 1, child.end_lineno or child.lineno)
        yield from _inner(child, name)
