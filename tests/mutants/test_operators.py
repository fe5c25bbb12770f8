"""The mutants of a module, and code without mutants."""

from __future__ import annotations

import ast
from textwrap import indent

import pytest

from tests.mutants.drawing import draw
from tests.mutants.operators import defaults_of

FILE = "stompkit/a.py"


def mutants(source: str) -> set[tuple[str, str]]:
    """Return all mutants of a module: the operator, and the resulting lines."""
    drawn: set[tuple[str, str]] = set()
    # A draw contains one mutant of a line, so several draws are needed for all.
    for seed in range(60):
        for each in draw({FILE: source}, seed=seed, count=50).mutants:
            drawn.add((each.operator, each.after.strip()))
    return drawn


def inside(body: str) -> str:
    return f"def f(a, b, c):\n{indent(body, '    ')}\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x = a < b", {("comparison", "x = a <= b")}),
        ("x = a is not b", {("comparison", "x = a is b")}),
        ("x = a not in b", {("comparison", "x = a in b")}),
        ("x = a < b != c", {("comparison", "x = a <= b != c"), ("comparison", "x = a < b == c")}),
        ("x = a and b", {("boolean operator", "x = a or b")}),
        ("x = a // b", {("arithmetic", "x = a * b")}),
        ("x = -a", {("arithmetic", "x = a")}),
        ("x = 7", {("constant", "x = 8"), ("constant", "x = 6")}),
        ("x = 0", {("constant", "x = 1")}),
        ("x = True", {("constant", "x = False")}),
        ("x = not a", {("negate condition", "x = (a)")}),
        ("if a:\n    x = b", {("negate condition", "if not (a):")}),
        ("if (x := a):\n    pass", {("negate condition", "if (not (x := a)):")}),
        ("a(b)", {("remove call", "pass")}),
        ("a.b = c", {("remove assignment", "pass")}),
        ("a += b", {("remove assignment", "pass"), ("arithmetic", "a -= b")}),
        ("raise a", {("remove raise", "pass")}),
        ("return a", {("return value", "return None")}),
        ("return a < b", {("comparison", "return a <= b"), ("return value", "return None"),
                          ("return value", "return not (a < b)")}),
        ("for x in a:\n    break", {("break or continue", "continue")}),
        ("x = max(a, b)", {("swap function", "x = min(a, b)")}),
        ("try:\n    x = a\nexcept b:\n    x = c", {("handler body", "pass")}),
    ],
)  # fmt: skip
def test_mutants_of_a_statement(body: str, expected: set[tuple[str, str]]) -> None:
    assert mutants(inside(body)) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A text: 1 < 2."""\n',
        "__all__ = ['a']\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\n    x = 1\n",
        inside("x: dict[1, 2] = a"),
        inside('_log.info("a", b=1 + 2)'),
        inside('x = f"{a + 1}"'),
        inside('x = "a" + b'),
        inside("x = int | None"),
        inside("assert a is not None"),
        "class A:\n    def __repr__(self):\n        return self.a + 1\n",
        "@decorated(1)\nclass A(B, frozen=True):\n    x: int\n",
        "if __name__ == '__main__':\n    pass\n",
    ],
)
def test_texts_types_and_logs_have_no_mutants(source: str) -> None:
    assert mutants(source) == set()


def test_what_an_error_says_has_no_mutants() -> None:
    assert mutants(inside("raise ValueError(a + 1, b or c)")) == {("remove raise", "pass")}


def test_an_argument_with_a_default_is_dropped() -> None:
    source = (
        "def f(a, *, b=None, c=None):\n    pass\n"
        "def g(x):\n    y = f(x, b=x, c=x)\n    z = f(a=x)\n    u = f(b=x)\n"
    )
    assert mutants(source) == {
        ("drop argument", "y = f(x, c=x)"),
        ("drop argument", "y = f(x, b=x)"),
        ("drop argument", "u = f()"),
    }


def test_a_default_has_to_be_there_in_all_of_that_name() -> None:
    found = defaults_of(
        ["def f(a=1, b=2): pass\n", "class A:\n    x: int\n    y: int = 1\n    def f(self, b=2): 0"]
    )
    assert found["f"] == {"b"}
    assert found["A"] == {"y"}


def test_letters_of_several_bytes_do_not_matter() -> None:
    assert mutants(inside("x = ('ä', a < b)")) == {("comparison", "x = ('ä', a <= b)")}


def test_all_mutants_are_python() -> None:
    source = inside("while a:\n    if b and c(x=1):\n        continue\n    return [1, *b]")
    for each in draw({FILE: source}, seed=1, count=50).mutants:
        lines = source.split("\n")
        lines[each.line - 1 : each.line - 1 + each.before.count("\n") + 1] = [each.after]
        assert ast.dump(ast.parse("\n".join(lines))) != ast.dump(ast.parse(source))
