"""Old names of modules and of what they export."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Container, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

__all__ = ["moved", "renamed"]


def moved(package: str, modules: Mapping[str, str]) -> None:
    """Make old names of a package's modules importable, with a DeprecationWarning.

    *modules* maps old names, relative to the package, to absolute new ones. The modules inside of a
    moved package are moved with it. Each module is loaded once, whatever name it is imported by.
    """
    names = {f"{package}.{old}": new for old, new in modules.items()}

    def module_of(name: str) -> Any:
        old = f"{package}.{name}"
        _warn(old, names[old], stacklevel=4)
        module = sys.modules.setdefault(old, import_module(names[old]))
        # ``from package import name`` asks for the attribute twice.
        setattr(sys.modules[package], name, module)
        return module

    sys.meta_path.insert(0, _Finder(names))
    _add_attributes(package, modules, module_of)


def renamed(module: str, **names: str) -> None:
    """Make old names of a module importable, with a DeprecationWarning.

    *names* maps old names to new ones. To be called at the end of the module, after its own
    ``__getattr__`` if it has one.
    """

    def value_of(name: str) -> Any:
        _warn(f"{module}.{name}", names[name], stacklevel=4)
        return getattr(sys.modules[module], names[name])

    _add_attributes(module, names, value_of)


def _warn(old: str, new: str, *, stacklevel: int) -> None:
    warnings.warn(
        f"{old} is {new} now; the old name goes with 2.0", DeprecationWarning, stacklevel=stacklevel
    )


def _add_attributes(module: str, names: Container[str], get: Callable[[str], Any]) -> None:
    """Make *names* attributes of a module, with the values that *get* returns."""
    attributes = vars(sys.modules[module])
    other = attributes.get("__getattr__")

    def attribute(name: str) -> Any:
        if name in names:
            return get(name)
        if other is not None:
            return other(name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    attributes["__getattr__"] = attribute


class _Finder(MetaPathFinder, Loader):
    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(name, self) if self._new_name(name) else None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        new = self._new_name(name)
        assert new is not None
        if name in self._modules:
            _warn(name, new, stacklevel=3)
        # The import system uses the module found here after this call returns.
        sys.modules[name] = import_module(new)

    def _new_name(self, name: str) -> str | None:
        """Return the new name of a moved module, or of a module inside of it."""
        inner = ""
        while name not in self._modules:
            name, dot, last = name.rpartition(".")
            if not dot:
                return None
            inner = f".{last}{inner}"
        return self._modules[name] + inner
