"""The choice of test files for a mutant, and their order."""

from __future__ import annotations

import ast
import math
import re
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec
from coverage import CoverageData

from tests.mutants.mutant import Mutant, locate, scopes

__all__ = ["Chooser", "TestMap", "covering", "measured_files", "seconds_of"]

#: Tests of sources, packages or counts of instructions, not of behaviour.
_LEFT_OUT: Final = (
    "tests/integration/neighbours/",
    "tests/mutants/",
    "tests/documentation/test_docs",
    "tests/project/test_instructions.py",
    "tests/project/test_layers.py",
    "tests/project/test_packaging.py",
    "tests/project/test_sbom.py",
)
#: Tests of many processes, of real servers or of Spark: after all others.
_SLOW: Final = (
    "tests/campaign/",
    "tests/integration/",
    "tests/spark/",
    "tests/project/test_docker.py",
)
#: Number of test files for a mutant without known coverage.
_GUESSES: Final = 8
_WORD: Final = re.compile(r"[a-z]{3,}")


class TestMap(msgspec.Struct, frozen=True, kw_only=True):
    """The test files that execute each mutant, by its id, and the durations of test files."""

    __test__ = False

    files: dict[int, list[str]]
    seconds: dict[str, float]
    #: All measured test files; the coverage of others is unknown.
    measured: list[str]

    @classmethod
    def read(cls, path: Path) -> TestMap:
        """Read a file that :meth:`write` has written."""
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


class Chooser:
    """Orders test files for mutants: mirrors first, then fast ones, then slow ones."""

    def __init__(self, tree: Path, known: TestMap | None = None) -> None:
        """Store the test files of a tree."""
        self._known = known or TestMap(files={}, seconds={}, measured=[])
        self._words: dict[str, frozenset[str]] = {}
        for path in sorted((tree / "tests").rglob("test_*.py")):
            name = path.relative_to(tree).as_posix()
            if not name.startswith(_LEFT_OUT):
                text = path.read_text(encoding="utf-8")
                self._words[name] = frozenset(_WORD.findall(f"{name} {text}".lower()))
        counts = Counter(word for words in self._words.values() for word in words)
        self._rarity = {word: math.log(len(self._words) / n) for word, n in counts.items()}

    def files(self, mutant: Mutant) -> list[str]:
        """Return test files, those first that are likely to find a mutant soon.

        They are the files that execute it. Unmeasured files are added if they share most rare words
        with it.
        """
        known = [name for name in self._known.files.get(mutant.id, ()) if name in self._words]
        return sorted({*known, *self._guessed(mutant)}, key=lambda name: self._rank(mutant, name))

    def _rank(self, mutant: Mutant, name: str) -> tuple[bool, bool, bool, float]:
        is_guess = name not in self._known.files.get(mutant.id, ())
        if is_guess:
            order = -self._likeness(mutant, name)
        else:
            order = self._known.seconds.get(name, len(self._words[name]) / 10)
        return not _is_mirror(mutant.file, name), name.startswith(_SLOW), is_guess, order

    def _guessed(self, mutant: Mutant) -> list[str]:
        names = self._words.keys() - set(self._known.measured)
        scored = sorted(names, key=lambda name: (-self._likeness(mutant, name), name))
        return scored[:_GUESSES]

    def _likeness(self, mutant: Mutant, name: str) -> float:
        text = f"{mutant.file} {mutant.scope} {mutant.before}".lower()
        shared = self._words[name].intersection(_WORD.findall(text))
        score = sum(self._rarity[word] for word in shared)
        folder = PurePosixPath(mutant.file).parent.relative_to("stompkit")
        if name.startswith(f"tests/{folder}/"):
            score *= 2
        return score * (4 if _is_mirror(mutant.file, name) else 1)


def _is_mirror(module: str, test: str) -> bool:
    """Return True if a test file is named after a module, in its folder or an outer one."""
    path = PurePosixPath(module)
    stem = (path.parent.name if path.stem == "__init__" else path.stem).strip("_")
    tested = PurePosixPath(test)
    folder = tested.parent.relative_to("tests")
    is_near = folder in path.parent.relative_to("stompkit").parents or (
        folder == path.parent.relative_to("stompkit")
    )
    name = tested.stem.removeprefix("test_")
    return is_near and (name == stem or name.startswith(f"{stem}_") or f"{name}_" == f"{stem}s_")


def measured_files(data: Path) -> list[str]:
    """Return the test files that are the contexts of a coverage.py data file."""
    measured = CoverageData(str(data))
    measured.read()
    return sorted({name for each in measured.measured_contexts() if (name := _test_file(each))})


def covering(
    mutants: Iterable[Mutant], data: Path, tree: Path, sources: Mapping[str, str]
) -> dict[int, list[str]]:
    """Return the test files that execute each mutant, from data of coverage.py.

    Its contexts have to be paths of test files. *tree* is the folder that was measured.
    """
    measured = CoverageData(str(data))
    measured.read()
    by_file: dict[str, dict[int, list[str]]] = {}
    found: dict[int, list[str]] = {}
    for mutant in mutants:
        place = locate(mutant, sources)
        if place is None:
            continue
        if place.file not in by_file:
            by_file[place.file] = measured.contexts_by_lineno(str(tree / place.file))
        contexts = by_file[place.file]
        lines = _lines(sources[place.file], mutant.scope, place.first + 1, place.count)
        files = {_test_file(each) for line in lines for each in contexts.get(line, ())}
        found[mutant.id] = sorted(name for name in files if name)
    return found


def _test_file(context: str) -> str:
    """Return the path in a context, after that of a process if any: ``none|tests/test_a.py``."""
    name = context.rpartition("|")[2]
    return name if name.startswith("tests/") else ""


def _lines(source: str, scope: str, first: int, count: int) -> Iterable[int]:
    """Return the lines from 1 that are executed with a mutant.

    For code that an import executes these are all lines of its functions. The reason is that an
    import is recorded only for the first test that causes it.
    """
    tree = ast.parse(source)
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= first <= (node.end_lineno or 0)
    ]
    if not functions:
        spans = [span for name, span in scopes(source) if name == scope]
        return _bodies(tree, {line + 1 for span in spans for line in span})
    inner = max(functions, key=lambda node: node.lineno)
    if first < inner.body[0].lineno:
        return _bodies(inner, set(range(first, (inner.end_lineno or first) + 1)))
    spans_of_statements = [
        span
        for node in ast.walk(inner)
        if isinstance(node, ast.stmt) and node is not inner and first in (span := _span(node))
    ]
    smallest = min(spans_of_statements, key=len, default=range(first, first + 1))
    return sorted({*smallest, *range(first, first + count)})


def _span(node: ast.stmt) -> range:
    """Return the lines of a statement, without those of nested statements."""
    end = node.end_lineno or node.lineno
    body = getattr(node, "body", None)
    if isinstance(body, list) and body:
        end = max(node.lineno, body[0].lineno - 1)
    return range(node.lineno, end + 1)


def _bodies(tree: ast.AST, lines: set[int]) -> set[int]:
    """Return the lines of function bodies among some lines."""
    return lines & {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)
    }


def seconds_of(junit: Path) -> dict[str, float]:
    """Return the duration of each test file, from a report that pytest has written with xdist."""
    taken: defaultdict[str, float] = defaultdict(float)
    for case in ET.parse(junit).iter("testcase"):
        for name in _files(case.get("classname", "")):
            taken[name] += float(case.get("time", "0"))
    return {name: round(seconds, 2) for name, seconds in taken.items()}


def _files(classname: str) -> Iterator[str]:
    """Return the file of a class name such as ``tests.server.test_a.TestB``."""
    parts = classname.split(".")
    for number, part in enumerate(parts, 1):
        if part.startswith("test_"):
            yield "/".join(parts[:number]) + ".py"
            return
