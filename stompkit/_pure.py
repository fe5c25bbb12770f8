"""The modules that are compiled in a wheel: as Python if need be, and which of both they are.

Whatever begins with stompkit imports this, so it imports little itself before that is wanted.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

__all__ = ["force_if_asked", "is_compiled"]


class _SourceFinder:
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
        from importlib.util import spec_from_file_location

        source = fullname.rpartition(".")[2] + ".py"
        return spec_from_file_location(fullname, os.path.join(os.path.dirname(spec.origin), source))


def force_if_asked() -> None:
    """With ``STOMPKIT_PURE`` in the environment, have everything imported as Python."""
    if os.environ.get("STOMPKIT_PURE", "") not in ("", "0"):
        sys.meta_path.insert(0, _SourceFinder())


def is_compiled() -> bool:
    """Return True if the modules on the path of a message are compiled; import the codec only."""
    from importlib.util import find_spec

    spec = find_spec("stompkit.frames._decoder")
    return str(spec and spec.origin).endswith(tuple(EXTENSION_SUFFIXES))
