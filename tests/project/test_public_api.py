"""Public names stay importable: names may be added, and old ones may warn.

``public_api.json`` has the recorded names of each public module. Only a major version may remove a
name from there.
"""

from __future__ import annotations

import json
import warnings
from importlib import import_module
from pathlib import Path

import pytest

RECORDED: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("public_api.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", RECORDED)
def test_public_names_are_there(module: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = import_module(module)
        assert [name for name in RECORDED[module] if not hasattr(found, name)] == []
