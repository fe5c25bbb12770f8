"""One mechanism for each thing: nobody writes again what ``stompkit._common`` offers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import stompkit

PACKAGE = Path(stompkit.__file__).parent
FILES = "_common/files.py"
#: Runs in a process of its own beside each broker, and imports nothing of the package.
GUARD = "testing/launching/processes/guard.py"


def test_reasons_of_errors_are_told_by_one_function() -> None:
    # An OSError that the system did not raise has no strerror: users would read "None".
    assert set(modules_with("strerror", reads_strerror)) <= {FILES, GUARD}


def test_folders_are_made_by_one_function() -> None:
    # Path.mkdir says "File exists" where a file takes the place of a folder.
    assert set(modules_with("mkdir", makes_folders)) == {FILES}


def modules_with(word: str, is_meant: Callable[[ast.AST], bool]) -> Iterator[str]:
    """Yield the modules that have a word in such a place."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if word in text and any(map(is_meant, ast.walk(ast.parse(text)))):
            yield path.relative_to(PACKAGE).as_posix()


def reads_strerror(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name("os")):
            return False
        case ast.Attribute(attr="strerror"):
            return True
    return False


def makes_folders(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="mkdir"), keywords=keywords):
            return any(each.arg == "parents" for each in keywords)
    return False
