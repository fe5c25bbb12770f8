"""Functions of compiled modules that call themselves have a bound.

Compiled functions call each other without Python's check of the depth. A value that contains itself
would end the process instead of raising RecursionError.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: What bounds each function of a module that comes back to itself, by file and name.
BOUNDED = {
    "model/values.to_json": "it calls itself with a text or a number",
    "model/values._document": "_MAX_LEVELS",
    "_binlog/values.json_text": "the parser of the document, in Python, calls itself as often",
}


def recursive(tree: ast.Module) -> set[str]:
    """Return the functions of a module that may call themselves, also by way of others."""
    called = {
        each.name: {node.id for node in ast.walk(each) if isinstance(node, ast.Name)}
        for each in tree.body
        if isinstance(each, ast.FunctionDef)
    }
    return {name for name in called if name in reached(name, called)}


def reached(name: str, called: dict[str, set[str]]) -> set[str]:
    """Return all that a function may call, in any number of steps."""
    found: set[str] = set()
    ahead = {name}
    while ahead:
        more = called.get(ahead.pop(), set()) - found
        found |= more
        ahead |= more
    return found


def compiled() -> Iterator[Path]:
    """Yield the modules that setup.py compiles."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    found = {
        ast.unparse(each.targets[0]): each.value
        for each in tree.body
        if isinstance(each, ast.Assign)
    }
    for folder, names in ast.literal_eval(found["COMPILED_MODULES"]).items():
        yield from (ROOT / folder / f"{name}.py" for name in names.split())
    for folder in ast.literal_eval(found["COMPILED_PACKAGES"]):
        yield from (ROOT / folder).rglob("*.py")


def test_functions_that_call_themselves_are_bounded() -> None:
    found = {
        f"{path.parent.name}/{path.stem}.{name}"
        for path in compiled()
        for name in recursive(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == BOUNDED.keys()
