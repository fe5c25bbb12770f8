"""The modules that are compiled in a wheel: as Python if need be, and which of both they are."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    ModuleSpec,
    PathFinder,
)
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

__all__ = ["force_if_asked", "is_compiled"]


class _SourceFinder(MetaPathFinder):
    """Finds the source of a module of this package beside its compiled form."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find nothing but what would be a compiled module otherwise."""
        if not fullname.startswith("stompkit."):
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None or not isinstance(spec.loader, ExtensionFileLoader):
            return None
        name = fullname.rpartition(".")[2]
        return spec_from_file_location(fullname, Path(spec.origin).with_name(f"{name}.py"))


def force_if_asked() -> None:
    """With ``STOMPKIT_PURE`` in the environment, have everything imported as Python."""
    if os.environ.get("STOMPKIT_PURE", "") not in ("", "0"):
        sys.meta_path.insert(0, _SourceFinder())


def is_compiled() -> bool:
    """Whether what each message goes through is compiled; imports the codec, and no more."""
    spec = find_spec("stompkit.frames._decoder")
    return str(spec and spec.origin).endswith(tuple(EXTENSION_SUFFIXES))
