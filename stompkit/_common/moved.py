"""Old names of packages and of what they export."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

__all__ = ["moved", "renamed"]


def moved(old: str, new: str) -> None:
    """Make the package *old* and its modules stand for *new*, with a DeprecationWarning.

    To be called by the module that is left in the old place. Each module is loaded once, whatever
    name it is imported by.
    """
    warnings.warn(
        f"{old} is {new} now; the old name goes with 2.0", DeprecationWarning, stacklevel=3
    )
    sys.meta_path.insert(0, _Finder(old, new))
    sys.modules[old] = import_module(new)


def renamed(module: str, **names: str) -> None:
    """Make old names of a module importable, with a DeprecationWarning.

    *names* maps old names to new ones. To be called at the end of the module, after its own
    ``__getattr__`` if it has one.
    """
    attributes = vars(sys.modules[module])
    other = attributes.get("__getattr__")

    def attribute(name: str) -> Any:
        if name in names:
            warnings.warn(
                f"{module}.{name} is {names[name]} now; the old name goes with 2.0",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(sys.modules[module], names[name])
        if other is not None:
            return other(name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    attributes["__getattr__"] = attribute


class _Finder(MetaPathFinder, Loader):
    def __init__(self, old: str, new: str) -> None:
        self._old = old
        self._new = new

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(name, self) if name.startswith(f"{self._old}.") else None

    def exec_module(self, module: ModuleType) -> None:
        # The import system uses the module found here after this call returns.
        name = module.__name__
        sys.modules[name] = import_module(self._new + name.removeprefix(self._old))
