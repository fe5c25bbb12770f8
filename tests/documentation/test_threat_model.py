"""The threat model: every test named in it exists, and every port has a section."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "explanation" / "threat-model.rst").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"``(tests/[\w/]+\.py)::(\w+)``", TEXT)))


def test_it_names_tests() -> None:
    assert len(NAMED) > 50
    assert TEXT.count("::test_") == len(re.findall(r"``tests/[\w/]+\.py::\w+``", TEXT))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_test_that_it_names_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, functions)}


@pytest.mark.parametrize(
    "port", ["STOMP", "TLS", "WebSocket", "PROXY protocol", "systemd", "beanstalk", "Admin HTTP"]
)
def test_every_port_has_a_section(port: str) -> None:
    titles = re.findall(r"^(.+)\n-+$", TEXT, re.MULTILINE)
    assert any(port in title for title in titles)
