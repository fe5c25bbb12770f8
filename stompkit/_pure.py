"""Compiled modules: import them as Python on request, and report which form is in use.

Each program that uses stompkit imports this module first, so it imports little.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

__all__ = ["force_if_asked", "is_compiled", "slowness"]


class _SourceFinder:
    """Finds the source of a module of this package, which is beside its compiled form."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the source of a module that is compiled; ``None`` for all others."""
        if not fullname.startswith("stompkit."):
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None or not isinstance(spec.loader, ExtensionFileLoader):
            return None
        from importlib.util import spec_from_file_location

        source = fullname.rpartition(".")[2] + ".py"
        return spec_from_file_location(fullname, os.path.join(os.path.dirname(spec.origin), source))


def force_if_asked() -> None:
    """Import everything as Python if the environment variable ``STOMPKIT_PURE`` is set."""
    if _is_pure_wanted():
        sys.meta_path.insert(0, _SourceFinder())


def _is_pure_wanted() -> bool:
    return os.environ.get("STOMPKIT_PURE", "") not in ("", "0")


def is_compiled() -> bool:
    """Return True if the modules on the path of a message are compiled; import the codec only."""
    from importlib.util import find_spec

    spec = find_spec("stompkit.frames._decoder")
    return str(spec and spec.origin).endswith(tuple(EXTENSION_SUFFIXES))


def slowness() -> str | None:
    """Return why a broker is slower than it could be, and the remedy.

    ``None`` means that the modules are compiled, or are Python because of ``STOMPKIT_PURE``.
    """
    if is_compiled() or _is_pure_wanted():
        return None
    return (
        "not compiled, so three to four times slower; install a wheel for this platform, or"
        " gcc and Python's headers, and then stompkit again from its source"
    )
