"""The recorded public names; ``python -m tests.project.public_api`` records new ones."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Final

__all__ = ["FILE", "exported", "recorded", "stable_modules"]

ROOT: Final = Path(__file__).parents[2]
FILE: Final = Path(__file__).with_suffix(".json")


def recorded() -> dict[str, list[str]]:
    """Return the recorded names of each module."""
    found: dict[str, list[str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def stable_modules() -> list[str]:
    """Return the modules that the documentation calls stable."""
    page = (ROOT / "docs" / "reference" / "stability.rst").read_text(encoding="utf-8")
    return re.findall(r"^``(stompkit[\w.]*)``  ", page, re.MULTILINE)


def exported(module: str) -> list[str]:
    """Return what a module exports."""
    return sorted(import_module(module).__all__)


def record() -> None:
    """Add the names that stable modules export; recorded names are kept."""
    names = recorded()
    for module in stable_modules():
        names[module] = sorted({*names.get(module, ()), *exported(module)})
    FILE.write_text(json.dumps(dict(sorted(names.items())), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()
