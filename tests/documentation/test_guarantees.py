"""The page of guarantees: each promise has an id and tests, and all of these exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from docutils import nodes
from docutils.core import publish_doctree

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "guarantees.rst"
TEST_ID = re.compile(r"(?P<file>[\w/]+\.py)::(?P<function>\w+)")


class Promise(NamedTuple):
    """A promise, with its id and the tests that prove it."""

    id: str
    title: str
    chapter: str
    tests: tuple[str, ...]


def parsed(text: str) -> nodes.document:
    settings = {"report_level": 2, "halt_level": 2, "doctitle_xform": False}
    document = publish_doctree(text, settings_overrides=settings)
    assert isinstance(document, nodes.document)
    return document


@cache
def page() -> nodes.document:
    return parsed(PAGE.read_text(encoding="utf-8"))


def named_tests(node: nodes.Node) -> tuple[str, ...]:
    """Return the ids of tests in a part of a page, in their order."""
    texts = [literal.astext() for literal in node.findall(nodes.literal)]
    return tuple(
        text for text in texts if "::" in text and text != "FILE::FUNCTION" and " " not in text
    )


def promises(document: nodes.document) -> Iterator[Promise]:
    for chapter in document.findall(nodes.section):
        for item in chapter.findall(nodes.definition_list_item):
            [term] = item.findall(nodes.term)
            first = term.children[0]
            if item.parent.parent is chapter and isinstance(first, nodes.literal):
                title = term.astext().removeprefix(first.astext()).strip()
                tests = named_tests(item)
                yield Promise(first.astext(), title, chapter.children[0].astext(), tests)


@cache
def named_in(path: Path) -> frozenset[str]:
    """Return the tests in a file, by its syntax: an import would need its requirements."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            # Hypothesis creates this test class for a state machine.
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(name for name in found if name.lower().startswith("test"))


def problem(test: str) -> str | None:
    """Return the error in the id of a test, or ``None`` if it is valid."""
    match = TEST_ID.fullmatch(test)
    if match is None:
        return f"{test} is no FILE::FUNCTION"
    path = ROOT / "tests" / match["file"]
    if not path.is_file():
        return f"there is no file tests/{match['file']}"
    if match["function"] not in named_in(path):
        return f"tests/{match['file']} has no {match['function']}"
    return None


ALL = list(promises(page()))


def test_every_promise_is_read_as_one() -> None:
    """Each promise has its definition at once; otherwise it would be an ordinary paragraph."""
    written = re.findall(r"^``([A-Z]\d+)``", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [promise.id for promise in ALL] == written
    assert len(written) > 100


@pytest.mark.parametrize("promise", ALL, ids=lambda promise: promise.id)
def test_a_promise_has_tests_that_exist(promise: Promise) -> None:
    assert promise.title, f"{promise.id} promises nothing"
    assert promise.tests, f"{promise.id} has no test"
    assert [problem(test) for test in promise.tests if problem(test)] == []
    assert len(set(promise.tests)) == len(promise.tests)


def test_what_is_said_not_to_be_promised_names_tests_that_exist() -> None:
    assert [problem(test) for test in named_tests(page()) if problem(test)] == []


def test_ids_are_unique_and_count_within_their_letter() -> None:
    ids = [promise.id for promise in ALL]
    letters = list(dict.fromkeys(each[0] for each in ids))
    expected = [
        f"{letter}{number}"
        for letter in letters
        for number in range(1, sum(each[0] == letter for each in ids) + 1)
    ]
    assert sorted(ids) == sorted(expected)


@pytest.mark.parametrize("promise", ALL, ids=lambda promise: promise.id)
def test_a_promise_can_be_linked_to_by_its_id(promise: Promise) -> None:
    assert page().nameids.get(promise.id.lower()) == promise.id.lower()


def test_each_chapter_says_what_is_not_promised() -> None:
    chapters = {promise.chapter for promise in ALL}
    for section in page().findall(nodes.section):
        if section.children[0].astext() in chapters:
            texts = [
                node.astext() for node in section.children if isinstance(node, nodes.paragraph)
            ]
            assert "Not guaranteed:" in texts, section.children[0].astext()


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("documentation/test_guarantees.py::test_every_promise_is_read_as_one", None),
        (
            "documentation/test_guarantees.py::test_nothing",
            "tests/documentation/test_guarantees.py has no test_nothing",
        ),
        (
            "documentation/test_guarantees.py::promises",
            "tests/documentation/test_guarantees.py has no promises",
        ),
        ("test_nowhere.py::test_a", "there is no file tests/test_nowhere.py"),
        ("test_guarantees::test_a", "test_guarantees::test_a is no FILE::FUNCTION"),
    ],
)
def test_a_test_that_does_not_exist_is_told(test: str, expected: str | None) -> None:
    assert problem(test) == expected


def test_a_promise_without_a_test_is_seen_as_such() -> None:
    text = """
Title
=====

``X1`` A title
    And ``code``.

    ``a.py::test_b``

``X2`` Bare
    No.
"""
    found = list(promises(parsed(text)))
    assert [(each.id, each.title, each.tests) for each in found] == [
        ("X1", "A title", ("a.py::test_b",)),
        ("X2", "Bare", ()),
    ]
