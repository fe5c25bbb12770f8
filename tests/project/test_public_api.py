"""Public names stay importable: names may be added, and old ones may warn.

``public_api.json`` has the recorded names of each public module. Only a major version may remove a
name from there.
"""

from __future__ import annotations

import re
import warnings
from importlib import import_module

import pytest

from tests.project.public_api import ROOT, exported, recorded, stable_modules

RECORDED = recorded()


@pytest.mark.parametrize("module", RECORDED)
def test_public_names_are_there(module: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = import_module(module)
        assert [name for name in RECORDED[module] if not hasattr(found, name)] == []


@pytest.mark.parametrize("module", stable_modules())
def test_names_of_stable_modules_are_recorded(module: str) -> None:
    new = sorted(set(exported(module)) - set(RECORDED.get(module, ())))
    assert new == [], "if they are to be public: python -m tests.project.public_api"


def test_modules_in_the_reference_are_stable() -> None:
    pages = (ROOT / "docs" / "reference" / "api").glob("*.rst")
    text = "".join(path.read_text(encoding="utf-8") for path in pages)
    assert set(re.findall(r"automodule:: (\S+)", text)) <= set(stable_modules())
