"""Classes that are compiled declare each attribute once.

A subclass that annotates an inherited attribute makes mypyc visit it twice when it looks for
garbage. The reference count of the object behind it is then wrong, and it is never freed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import stompkit

PACKAGE = Path(stompkit.__file__).parent
#: The folders with compiled modules.
FOLDERS = ("frames", "replication/model", "replication/sources", "server")


def annotated(cls: ast.ClassDef) -> Iterator[str]:
    """Yield the names of the attributes of objects that a class annotates."""
    for node in ast.walk(cls):
        if isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node.annotation):
            target = node.target
            if isinstance(target, ast.Name) and node in cls.body:
                yield target.id
            elif isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                yield target.attr


def classes() -> dict[str, ast.ClassDef]:
    """Return the classes of these folders by name; of several with a name, all are checked."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    found[f"{node.name} of {path.relative_to(PACKAGE)}"] = node
    return found


CLASSES = classes()


def bases(cls: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """Yield all classes that a class may derive from, by their names."""
    for base in cls.bases:
        name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
        for each in CLASSES.values():
            if each.name == name and each is not cls:
                yield each
                yield from bases(each)


@pytest.mark.parametrize("name", CLASSES)
def test_an_inherited_attribute_is_not_annotated_again(name: str) -> None:
    inherited = {attribute for base in bases(CLASSES[name]) for attribute in annotated(base)}
    assert inherited & set(annotated(CLASSES[name])) == set()


def test_an_attribute_that_is_annotated_twice_is_found() -> None:
    [cls] = ast.parse("class C:\n  a: int\n  def f(self):\n    self.b: int = 1").body
    assert isinstance(cls, ast.ClassDef)
    assert list(annotated(cls)) == ["a", "b"]
